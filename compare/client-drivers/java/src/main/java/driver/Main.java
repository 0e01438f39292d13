package driver;

import java.util.Locale;

/** Drives clients that cache with a plan that ../rust follows in the same way. See ../../../../../../README.md. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Locale.setDefault(Locale.ROOT);
        Plan plan = new Plan(arguments);
        String work = plan.text("work", "");
        if (work.equals("choices")) {
            plan.print();
            return;
        }
        Client client = Client.of(plan);
        switch (work) {
            case "load" -> Load.run(plan, client);
            case "hits" -> Parts.hits(plan, client);
            case "fill" -> Parts.fill(plan, client);
            case "first-byte" -> Parts.firstByte(plan, client);
            default -> throw new IllegalArgumentException("there is no work `" + work + "`");
        }
        System.exit(0);
    }
}
