package driver;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.function.Consumer;
import org.apache.hc.client5.http.cache.HttpCacheContext;
import org.apache.hc.client5.http.cache.HttpCacheStorage;
import org.apache.hc.client5.http.classic.methods.HttpGet;
import org.apache.hc.client5.http.config.RequestConfig;
import org.apache.hc.client5.http.impl.cache.BasicHttpCacheStorage;
import org.apache.hc.client5.http.impl.cache.CachingHttpClientBuilder;
import org.apache.hc.client5.http.impl.cache.memcached.MemcachedHttpCacheStorage;
import org.apache.hc.client5.http.impl.classic.CloseableHttpClient;
import org.apache.hc.client5.http.impl.classic.HttpClientBuilder;
import org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManagerBuilder;
import org.apache.hc.core5.http.ClassicHttpResponse;
import org.apache.hc.core5.http.Header;
import org.apache.hc.core5.http.HttpHeaders;
import org.apache.hc.core5.util.Timeout;

/** HttpClient with a thread for each user. */
final class ClassicClient implements Client {
    private static final int PIECE = 64 << 10;
    private final Plan plan;
    private final CloseableHttpClient client;

    ClassicClient(Plan plan, String storage) throws IOException {
        this.plan = plan;
        HttpClientBuilder builder = storage.equals("none") ? HttpClientBuilder.create() : caching(storage);
        client = builder
            .setConnectionManager(PoolingHttpClientConnectionManagerBuilder.create()
                .setMaxConnTotal(plan.users + 1)
                .setMaxConnPerRoute(plan.users + 1)
                .build())
            .setDefaultRequestConfig(RequestConfig.custom().setResponseTimeout(Timeout.ofSeconds(PATIENCE_SECONDS)).build())
            .disableContentCompression()
            .disableCookieManagement()
            .disableAuthCaching()
            .build();
    }

    private HttpClientBuilder caching(String storage) throws IOException {
        HttpCacheStorage store = storage.equals("memory")
            ? new BasicHttpCacheStorage(Storage.config(plan))
            : new MemcachedHttpCacheStorage(Storage.memcached(plan));
        return CachingHttpClientBuilder.create().setCacheConfig(Storage.config(plan)).setHttpCacheStorage(store);
    }

    @Override
    public Runnable ask(Choice choice, Consumer<Answer> answered) {
        HttpGet request = new HttpGet(plan.urlOf(choice.url()));
        request.setHeader(HttpHeaders.ACCEPT_LANGUAGE, choice.language());
        if (choice.identity() >= 0) {
            request.setHeader(HttpHeaders.AUTHORIZATION, "Bearer " + choice.identity());
        }
        HttpCacheContext context = HttpCacheContext.create();
        Answer answer;
        try {
            answer = client.execute(request, context, response -> read(response, context));
        } catch (Exception error) {
            answer = Answer.failed(error);
        }
        answered.accept(answer);
        return null;
    }

    private static Answer read(ClassicHttpResponse response, HttpCacheContext context) throws IOException {
        InputStream content = response.getEntity().getContent();
        byte[] piece = new byte[(int) Math.min(PIECE, Math.max(1, response.getEntity().getContentLength()))];
        ByteArrayOutputStream body = new ByteArrayOutputStream(piece.length);
        int length = content.read(piece);
        long firstByte = System.nanoTime();
        for (; length >= 0; length = content.read(piece)) {
            body.write(piece, 0, length);
        }
        Header cacheControl = response.getFirstHeader(HttpHeaders.CACHE_CONTROL);
        long lifetime = Answer.lifetime(cacheControl == null ? null : cacheControl.getValue());
        return new Answer(response.getCode(), Storage.outcome(context), lifetime, body.toByteArray(), firstByte, null);
    }

    @Override
    public boolean blocks() {
        return true;
    }
}
