package driver;

import java.util.Iterator;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.IntFunction;
import java.util.function.ToDoubleFunction;
import java.util.stream.IntStream;

/** What is measured apart from the load: CPU time for a hit, memory for an entry, the time to the first byte. */
final class Parts {
    /** How many of the stored urls are asked for again, to see that they are stored. */
    private static final int SAMPLED = 1000;

    private Parts() {}

    /** Users without a pause ask for urls that are stored. */
    static void hits(Plan plan, Client client) throws InterruptedException {
        Load.eachOnce(plan, client);
        LongAdder requests = new LongAdder();
        LongAdder hits = new LongAdder();
        LongAdder wrong = new LongAdder();
        AtomicBoolean stopped = new AtomicBoolean();
        IntFunction<Iterator<Choice>> drawn = Load.drawn(plan);
        var done = Users.start(plan, client, user -> until(stopped, drawn.apply(user)), one -> {
            requests.increment();
            if (one.answer().error() != null || one.wrong() != null) {
                wrong.increment();
            } else if (one.answer().outcome().equals("hit")) {
                hits.increment();
            }
        });
        Thread.sleep(plan.seconds("warm-seconds").toMillis());
        long began = System.nanoTime();
        long spent = Process.cpuNanos();
        long[] before = {requests.sum(), hits.sum(), wrong.sum()};
        Thread.sleep(plan.seconds("seconds").toMillis());
        long[] after = {requests.sum(), hits.sum(), wrong.sum()};
        spent = Process.cpuNanos() - spent;
        double took = (System.nanoTime() - began) / 1e9;
        stopped.set(true);
        done.await();
        System.out.printf("{\"requests\":%d,\"hits\":%d,\"wrong\":%d,\"seconds\":%.6f,\"cpu_us\":%d}%n",
            after[0] - before[0], after[1] - before[1], after[2] - before[2], took, spent / 1000);
    }

    private static Iterator<Choice> until(AtomicBoolean stopped, Iterator<Choice> choices) {
        return new Iterator<>() {
            @Override
            public boolean hasNext() {
                return !stopped.get();
            }

            @Override
            public Choice next() {
                return choices.next();
            }
        };
    }

    /** All urls once, and the memory of the process before and after. */
    static void fill(Plan plan, Client client) throws Exception {
        long liveBefore = Process.liveBytes();
        long residentBefore = Process.residentBytes();
        Load.eachOnce(plan, client);
        Thread.sleep(plan.seconds("warm-seconds").toMillis());
        long residentAfter = Process.residentBytes();
        long liveAfter = Process.liveBytes();
        int step = Math.max(1, plan.urls / SAMPLED);
        AtomicLong asked = new AtomicLong();
        LongAdder hits = new LongAdder();
        Users.start(plan, client, user -> IntStream.iterate(user * step, url -> url < plan.urls, url -> url + step * plan.users)
            .mapToObj(Choice::plain).iterator(), one -> {
                asked.incrementAndGet();
                if (one.answer().outcome().equals("hit")) {
                    hits.increment();
                }
            }).await();
        System.out.printf("{\"urls\":%d,\"resident_before\":%d,\"resident_after\":%d,\"live_before\":%d,\"live_after\":%d,\"sampled\":%d,\"hits\":%d}%n",
            plan.urls, residentBefore, residentAfter, liveBefore, liveAfter, asked.get(), hits.sum());
    }

    /**
     * Each url once, and never again: milliseconds to the first byte of its body, and to the last. The first that each user
     * asks for is where connections are made and programs compiled, and is left out.
     */
    static void firstByte(Plan plan, Client client) throws InterruptedException {
        Queue<Users.Seen> all = new ConcurrentLinkedQueue<>();
        Users.start(plan, client, Load.shared(plan), one -> {
            if (one.answer().error() != null || one.wrong() != null) {
                System.err.println(plan.pathOf(one.choice().url()) + ": " + one.answer().error() + ", wrong: " + one.wrong());
                System.exit(1);
            }
            if (one.choice().url() >= plan.users) {
                all.add(one);
            }
        }).await();
        System.out.printf("{\"requests\":%d,\"first_ms\":%.3f,\"last_ms\":%.3f}%n", all.size(),
            median(all, one -> (one.answer().firstByteNanos() - one.beganNanos()) / 1e6), median(all, one -> one.latencyNanos() / 1e6));
    }

    private static double median(Queue<Users.Seen> all, ToDoubleFunction<Users.Seen> of) {
        return Figures.nearest(all.stream().mapToDouble(of).sorted().toArray(), 0.5);
    }
}
