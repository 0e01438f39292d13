package driver;

import java.util.Iterator;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntFunction;

/** Users who ask, have the answer checked, and pause: each on a thread of its own, or called back, as the client has it. */
final class Users {
    /** One request that was answered, or was not. */
    record Seen(Choice choice, Answer answer, long beganNanos, long latencyNanos, String wrong, long oversleptNanos) {}

    interface Witness {
        void saw(Seen seen);
    }

    /** As many as there are cores, like the runtime of the Rust driver. */
    private static final int THREADS = Runtime.getRuntime().availableProcessors();

    private final Plan plan;
    private final Client client;
    private final Witness witness;
    private final CountDownLatch done;
    private final ScheduledThreadPoolExecutor pauses = new ScheduledThreadPoolExecutor(THREADS, task -> daemon(task));

    private Users(Plan plan, Client client, Witness witness) {
        this.plan = plan;
        this.client = client;
        this.witness = witness;
        done = new CountDownLatch(plan.users);
    }

    /** Starts them. What is returned has been counted down when all have run out of choices. */
    static CountDownLatch start(Plan plan, Client client, IntFunction<Iterator<Choice>> choices, Witness witness) {
        Users users = new Users(plan, client, witness);
        for (int user = 0; user < plan.users; user++) {
            Iterator<Choice> own = choices.apply(user);
            if (client.blocks()) {
                daemon(() -> users.blocking(own)).start();
            } else {
                users.new CalledBack(own).begin();
            }
        }
        return users.done;
    }

    private static Thread daemon(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    }

    private void blocking(Iterator<Choice> choices) {
        Answer[] answers = new Answer[1];
        long overslept = 0;
        while (choices.hasNext()) {
            Choice choice = choices.next();
            long began = System.nanoTime();
            client.ask(choice, answer -> answers[0] = answer);
            see(choice, answers[0], began, overslept);
            long until = System.nanoTime() + choice.pauseNanos();
            long left = choice.pauseNanos();
            while (left > 0) {
                LockSupport.parkNanos(left);
                left = until - System.nanoTime();
            }
            overslept = -left;
        }
        done.countDown();
    }

    private void see(Choice choice, Answer answer, long began, long overslept) {
        long latency = System.nanoTime() - began;
        String wrong = answer.error() == null ? Check.wrong(plan, choice, answer) : null;
        witness.saw(new Seen(choice, answer, began, latency, wrong, overslept));
    }

    /** A user between whose requests no thread waits. A watch gives up what is never answered. */
    private final class CalledBack implements Runnable {
        private final Iterator<Choice> choices;
        private Choice choice;
        private Runnable giveUp;
        private long number;
        private long due;
        private long began;
        private long overslept;
        private boolean waits;

        CalledBack(Iterator<Choice> choices) {
            this.choices = choices;
        }

        void begin() {
            due = System.nanoTime();
            pauses.execute(this);
            pauses.scheduleWithFixedDelay(this::watch, 1, 1, TimeUnit.SECONDS);
        }

        @Override
        public void run() {
            if (!choices.hasNext()) {
                done.countDown();
                return;
            }
            long mine;
            synchronized (this) {
                choice = choices.next();
                began = System.nanoTime();
                overslept = began - due;
                waits = true;
                mine = ++number;
            }
            Runnable cancels = client.ask(choice, answer -> answered(mine, answer));
            synchronized (this) {
                giveUp = cancels;
            }
        }

        private void answered(long mine, Answer answer) {
            synchronized (this) {
                if (!waits || mine != number) {
                    return; // it was given up
                }
                waits = false;
            }
            see(choice, answer, began, overslept);
            due = System.nanoTime() + choice.pauseNanos();
            if (choice.pauseNanos() > 0) {
                pauses.schedule(this, choice.pauseNanos(), TimeUnit.NANOSECONDS);
            } else {
                pauses.execute(this);
            }
        }

        private void watch() {
            long mine;
            Runnable cancels;
            synchronized (this) {
                if (!waits || System.nanoTime() - began < TimeUnit.SECONDS.toNanos(Client.PATIENCE_SECONDS)) {
                    return;
                }
                mine = number;
                cancels = giveUp;
            }
            answered(mine, Answer.failed("no answer in time"));
            if (cancels != null) {
                cancels.run();
            }
        }
    }
}
