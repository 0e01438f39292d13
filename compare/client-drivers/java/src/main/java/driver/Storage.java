package driver;

import java.io.IOException;
import java.util.List;
import net.spy.memcached.AddrUtil;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.DefaultHashAlgorithm;
import net.spy.memcached.FailureMode;
import net.spy.memcached.MemcachedClient;
import org.apache.hc.client5.http.cache.CacheResponseStatus;
import org.apache.hc.client5.http.cache.HttpCacheContext;
import org.apache.hc.client5.http.impl.cache.CacheConfig;

/** How HttpClient's cache is set up: the same for its classic and its async client. */
final class Storage {
    /** Consecutive operations without an answer after which a server counts as lost: by default 998, and with ten a cold start loses servers that are well. */
    private static final int MOST_TIMEOUTS = 100;
    private static final long MOST_SECONDS_UNTIL_ASKED_AGAIN = 1;

    private Storage() {}

    /** HttpClient bounds entries, not bytes. */
    static CacheConfig config(Plan plan) {
        return CacheConfig.custom()
            .setMaxCacheEntries((int) plan.number("entries", 1 << 20))
            .setMaxObjectSize(1 << 20)
            .setSharedCache(plan.identities == 0)
            .build();
    }

    /** Ketama, as the documentation of HttpClient's cache advises for a pool. */
    static MemcachedClient memcached(Plan plan) throws IOException {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SLF4JLogger");
        return new MemcachedClient(
            new ConnectionFactoryBuilder()
                .setLocatorType(ConnectionFactoryBuilder.Locator.CONSISTENT)
                .setHashAlg(DefaultHashAlgorithm.KETAMA_HASH)
                .setFailureMode(FailureMode.Redistribute)
                .setOpTimeout(plan.number("deadline-ms", 50))
                .setTimeoutExceptionThreshold(MOST_TIMEOUTS)
                .setMaxReconnectDelay(MOST_SECONDS_UNTIL_ASKED_AGAIN)
                .setDaemon(true)
                .build(),
            AddrUtil.getAddresses(List.of(plan.text("memcached", "").split(","))));
    }

    static String outcome(HttpCacheContext context) {
        CacheResponseStatus status = context.getCacheResponseStatus();
        if (status == null) {
            return "none";
        }
        switch (status) {
            case CACHE_HIT:
                return "hit";
            case CACHE_MISS:
                return "miss";
            case VALIDATED:
                return "validated";
            case CACHE_MODULE_RESPONSE:
                return "module";
            default:
                return "failure";
        }
    }
}
