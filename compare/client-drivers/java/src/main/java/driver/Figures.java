package driver;

import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.TreeMap;
import java.util.function.Function;
import java.util.stream.Collectors;

/** What was seen in an interval, as one line of JSON. */
final class Figures {
    private Figures() {}

    static String line(int interval, long tookNanos, long cpuNanos, List<Users.Seen> seen) {
        double[] micros = seen.stream().mapToDouble(one -> one.latencyNanos() / 1e3).sorted().toArray();
        double overslept = seen.stream().mapToDouble(one -> one.oversleptNanos() / 1e3).average().orElse(0);
        return String.format(Locale.ROOT,
            "{\"interval\":%d,\"seconds\":%.6f,\"requests\":%d,\"cpu_us\":%d,\"mean_us\":%.1f,\"p50_us\":%.1f,\"p95_us\":%.1f,\"p99_us\":%.1f,"
                + "\"max_us\":%.1f,\"overslept_us\":%.1f,\"statuses\":%s,\"outcomes\":%s,\"errors\":%s,\"wrong\":%s}",
            interval, tookNanos / 1e9, seen.size(), cpuNanos / 1000, Arrays.stream(micros).average().orElse(0), nearest(micros, 0.50),
            nearest(micros, 0.95), nearest(micros, 0.99), nearest(micros, 1.0), overslept,
            counts(seen, one -> one.answer().error() == null ? String.valueOf(one.answer().status()) : null),
            counts(seen, one -> one.answer().error() == null ? one.answer().outcome() : null),
            counts(seen, one -> one.answer().error()),
            counts(seen, Users.Seen::wrong));
    }

    /** The percentile by nearest rank. */
    static double nearest(double[] sorted, double share) {
        int rank = (int) Math.ceil(share * sorted.length);
        return sorted.length == 0 ? 0 : sorted[Math.max(1, rank) - 1];
    }

    private static String counts(List<Users.Seen> seen, Function<Users.Seen, String> what) {
        Map<String, Long> all = seen.stream().map(what).filter(Objects::nonNull)
            .collect(Collectors.groupingBy(text -> text, TreeMap::new, Collectors.counting()));
        return all.entrySet().stream()
            .map(entry -> "\"" + entry.getKey().replaceAll("[\"\\\\\n\t]", " ") + "\":" + entry.getValue())
            .collect(Collectors.joining(",", "{", "}"));
    }
}
