package driver;

/** What a client gave for a request, or what went wrong in a few words. */
record Answer(int status, String outcome, long lifetimeSeconds, byte[] body, long firstByteNanos, String error) {
    static Answer failed(Throwable error) {
        String text = error.getMessage() == null ? "" : ": " + error.getMessage().split("[\\[(/]")[0].trim();
        return failed(error.getClass().getSimpleName() + text);
    }

    static Answer failed(String error) {
        return new Answer(0, "", 0, null, System.nanoTime(), error);
    }

    Answer now() {
        return new Answer(status, outcome, lifetimeSeconds, body, System.nanoTime(), null);
    }

    /** The seconds of max-age, or none. */
    static long lifetime(String cacheControl) {
        int at = cacheControl == null ? -1 : cacheControl.indexOf("max-age=");
        if (at < 0) {
            return 0;
        }
        String rest = cacheControl.substring(at + "max-age=".length());
        int end = rest.indexOf(',');
        return Long.parseLong((end < 0 ? rest : rest.substring(0, end)).trim());
    }
}
