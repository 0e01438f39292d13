package driver;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.function.IntFunction;
import java.util.stream.IntStream;

/** Users who draw urls: one line for each interval. */
final class Load {
    private List<Users.Seen> seen = new ArrayList<>();

    private synchronized void saw(Users.Seen one) {
        seen.add(one);
    }

    private synchronized List<Users.Seen> take() {
        List<Users.Seen> taken = seen;
        seen = new ArrayList<>();
        return taken;
    }

    static void run(Plan plan, Client client) throws InterruptedException {
        if (plan.number("warm-urls", 0) == 1) {
            eachOnce(plan, client);
        }
        Load load = new Load();
        Users.start(plan, client, drawn(plan), load::saw);
        Thread.sleep(plan.seconds("warm-seconds").toMillis());
        load.take();
        long began = System.nanoTime();
        long spent = Process.cpuNanos();
        System.out.println("{\"began\":true}");
        for (int interval = 0; interval < plan.number("intervals", 1); interval++) {
            long left = began + plan.seconds("seconds").toNanos() - System.nanoTime();
            Thread.sleep(Math.max(0, left / 1_000_000));
            List<Users.Seen> taken = load.take();
            long now = System.nanoTime();
            long cpu = Process.cpuNanos();
            System.out.println(Figures.line(interval, now - began, cpu - spent, taken));
            began = now;
            spent = cpu;
        }
    }

    static IntFunction<Iterator<Choice>> drawn(Plan plan) {
        return user -> {
            Choices choices = new Choices(plan, user);
            return IntStream.iterate(0, number -> number).mapToObj(number -> choices.next()).iterator();
        };
    }

    /** All urls, shared among the users. */
    static IntFunction<Iterator<Choice>> shared(Plan plan) {
        return user -> IntStream.iterate(user, url -> url < plan.urls, url -> url + plan.users).mapToObj(Choice::plain).iterator();
    }

    /** A request that fails is one that warms nothing. */
    static void eachOnce(Plan plan, Client client) throws InterruptedException {
        Users.start(plan, client, shared(plan), one -> {
            if (one.wrong() != null) {
                System.err.println("warming: " + plan.pathOf(one.choice().url()) + " is wrong: " + one.wrong());
                System.exit(1);
            }
        }).await();
    }
}
