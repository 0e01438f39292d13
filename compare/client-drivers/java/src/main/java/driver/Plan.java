package driver;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/** What is asked for: the words of the command line. See ../../../../../../README.md. */
final class Plan {
    private final Map<String, String> words = new HashMap<>();
    final String origin;
    final String path;
    final int urls;
    final int variants;
    final int identities;
    final int users;
    final int size;
    final long staleSeconds;
    final long pauseMicros;
    final long seed;

    Plan(String[] arguments) {
        for (String word : arguments) {
            int sign = word.indexOf('=');
            if (sign < 0) {
                throw new IllegalArgumentException("`" + word + "` is not NAME=VALUE");
            }
            words.put(word.substring(0, sign), word.substring(sign + 1));
        }
        origin = text("origin", "");
        path = text("path", "");
        urls = (int) number("urls", 1);
        variants = (int) number("variants", 1);
        identities = (int) number("identities", 0);
        users = (int) number("users", 1);
        size = (int) number("size", 0);
        staleSeconds = number("stale-seconds", 0);
        pauseMicros = number("pause-us", 0);
        seed = number("seed", 1);
    }

    String text(String name, String other) {
        return words.getOrDefault(name, other);
    }

    long number(String name, long other) {
        return words.containsKey(name) ? Long.parseLong(words.get(name)) : other;
    }

    Duration seconds(String name) {
        return Duration.ofNanos((long) (Double.parseDouble(words.getOrDefault(name, "0")) * 1e9));
    }

    String pathOf(int url) {
        return "/" + path + "/" + url;
    }

    String urlOf(int url) {
        return "http://" + origin + pathOf(url);
    }

    /** The first choices, to be compared with those of other languages. */
    void print() {
        for (int user = 0; user < users; user++) {
            Choices choices = new Choices(this, user);
            for (long number = 0; number < number("requests", 10); number++) {
                Choice choice = choices.next();
                System.out.printf("%d %d %d %d %d%n", user, choice.url(), choice.variant(), choice.identity(), choice.pauseNanos() / 1000);
            }
        }
    }
}
