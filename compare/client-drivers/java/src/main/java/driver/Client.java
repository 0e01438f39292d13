package driver;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** What is compared. */
interface Client {
    /** Nobody waits for longer. */
    long PATIENCE_SECONDS = 5;

    /** One request and all of its answer. What is returned gives it up. */
    Runnable ask(Choice choice, Consumer<Answer> answered);

    /** Whether the answer is there when {@code ask} returns: each user needs a thread. */
    boolean blocks();

    static Client of(Plan plan) throws Exception {
        String storage = plan.text("storage", "none");
        boolean blocks = plan.text("client", "").equals("classic");
        if (storage.equals("stub")) {
            return new Stub(plan, blocks);
        }
        return blocks ? new ClassicClient(plan, storage) : new AsyncClient(plan, storage);
    }

    /** Makes no request: what is left is the driver. */
    final class Stub implements Client {
        private final List<Answer> answers = new ArrayList<>();
        private final boolean blocks;

        Stub(Plan plan, boolean blocks) throws Exception {
            this.blocks = blocks;
            Client client = new ClassicClient(plan, "none");
            for (int url = 0; url < plan.urls; url++) {
                client.ask(Choice.plain(url), answer -> answers.add(new Answer(answer.status(), "hit", 0, answer.body(), 0, null)));
            }
        }

        @Override
        public Runnable ask(Choice choice, Consumer<Answer> answered) {
            answered.accept(answers.get(choice.url()).now());
            return null;
        }

        @Override
        public boolean blocks() {
            return blocks;
        }
    }
}
