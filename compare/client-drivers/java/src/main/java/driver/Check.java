package driver;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;

/** Whether a body is the one that was asked for. */
final class Check {
    /** A second is lost where a date has no fractions, and another where a lifetime has none. */
    private static final long ROUNDING_SECONDS = 2;
    private static final byte[] END = "</p>\n".getBytes(StandardCharsets.US_ASCII);
    private static final int OPENING = 512;

    private Check() {}

    /** What is wrong with it, or null. */
    static String wrong(Plan plan, Choice choice, Answer answer) {
        byte[] body = answer.body();
        if (body.length != plan.size || !ends(body)) {
            return "length";
        }
        String[] lines = new String(body, 0, Math.min(body.length, OPENING), StandardCharsets.ISO_8859_1).split("\n", 6);
        if (lines.length < 6) {
            return "text";
        }
        if (!lines[1].equals("<title>" + plan.pathOf(choice.url()) + "</title>")) {
            return "url";
        }
        String variant = between(lines[4], "<p>accept-language: ", "; authorization: ");
        String user = between(lines[4], "; authorization: ", "</p>");
        if (!choice.language().equals(variant)) {
            return "variant";
        }
        if (!(choice.identity() < 0 ? "-" : "Bearer " + choice.identity()).equals(user)) {
            return "user";
        }
        return isTooOld(plan, lines[3], answer) ? "generation" : null;
    }

    /** A page that changes says when it was made. */
    private static boolean isTooOld(Plan plan, String version, Answer answer) {
        String date = between(version, ", ", ".</p>");
        if (date == null) {
            return false;
        }
        Instant made = ZonedDateTime.parse(date, DateTimeFormatter.RFC_1123_DATE_TIME).toInstant();
        return Duration.between(made, Instant.now()).toMillis() > (answer.lifetimeSeconds() + plan.staleSeconds + ROUNDING_SECONDS) * 1000;
    }

    private static boolean ends(byte[] body) {
        for (int at = 0; at < END.length; at++) {
            if (body.length < END.length || body[body.length - END.length + at] != END[at]) {
                return false;
            }
        }
        return true;
    }

    private static String between(String text, String before, String after) {
        int begin = text.indexOf(before);
        int end = begin < 0 ? -1 : text.indexOf(after, begin + before.length());
        return end < 0 ? null : text.substring(begin + before.length(), end);
    }
}
