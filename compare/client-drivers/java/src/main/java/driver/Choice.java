package driver;

/** One request, and how long its user waits after the answer. Nobody in particular has identity -1. */
record Choice(int url, int variant, int identity, long pauseNanos) {
    static final String[] LANGUAGES = {"de", "en", "fr", "it"};

    /** The first time that a url is asked for, by nobody in particular. */
    static Choice plain(int url) {
        return new Choice(url, 0, -1, 0);
    }

    String language() {
        return LANGUAGES[variant];
    }
}
