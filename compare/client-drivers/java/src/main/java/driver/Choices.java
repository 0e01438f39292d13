package driver;

/** Each user's own choices, the same in every run and every language: SplitMix64, of which a draw takes the upper 31 bits. */
final class Choices {
    private final Plan plan;
    private long state;

    Choices(Plan plan, int user) {
        this.plan = plan;
        state = plan.seed * 1_000_003 + user;
    }

    Choice next() {
        int url = (int) draw(plan.urls);
        int variant = (int) draw(plan.variants);
        int identity = (int) draw(Math.max(1, plan.identities));
        long pause = draw(plan.pauseMicros + 1);
        return new Choice(url, variant, plan.identities > 0 ? identity : -1, pause * 1000);
    }

    private long draw(long of) {
        state += 0x9e3779b97f4a7c15L;
        long mixed = state;
        mixed = (mixed ^ (mixed >>> 30)) * 0xbf58476d1ce4e5b9L;
        mixed = (mixed ^ (mixed >>> 27)) * 0x94d049bb133111ebL;
        return ((mixed ^ (mixed >>> 31)) >>> 33) % of;
    }
}
