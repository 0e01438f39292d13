package blog;

import java.util.concurrent.atomic.AtomicLong;

/** How many pages have been asked for, how many are being made, and the most that were made at a time. */
class Counters {
    private final AtomicLong requests = new AtomicLong();
    private final AtomicLong underWay = new AtomicLong();
    private final AtomicLong most = new AtomicLong();

    void begin() {
        requests.incrementAndGet();
        var now = underWay.incrementAndGet();
        most.accumulateAndGet(now, Math::max);
    }

    void end() {
        underWay.decrementAndGet();
    }

    /** Counts from zero; what is under way stays counted as such. */
    void reset() {
        requests.set(0);
        most.set(underWay.get());
    }

    String json() {
        return "{\"requests\": %d, \"in_flight\": %d, \"max_parallel\": %d}%n".formatted(requests.get(), underWay.get(), most.get());
    }
}
