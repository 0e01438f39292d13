package driver;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import org.apache.hc.client5.http.async.methods.AbstractBinResponseConsumer;
import org.apache.hc.client5.http.async.methods.SimpleHttpRequest;
import org.apache.hc.client5.http.async.methods.SimpleRequestBuilder;
import org.apache.hc.client5.http.async.methods.SimpleRequestProducer;
import org.apache.hc.client5.http.cache.HttpAsyncCacheStorage;
import org.apache.hc.client5.http.cache.HttpCacheContext;
import org.apache.hc.client5.http.config.RequestConfig;
import org.apache.hc.client5.http.config.TlsConfig;
import org.apache.hc.client5.http.impl.async.CloseableHttpAsyncClient;
import org.apache.hc.client5.http.impl.async.HttpAsyncClientBuilder;
import org.apache.hc.client5.http.impl.cache.BasicHttpCacheStorage;
import org.apache.hc.client5.http.impl.cache.CachingHttpAsyncClientBuilder;
import org.apache.hc.client5.http.impl.cache.memcached.MemcachedHttpAsyncCacheStorage;
import org.apache.hc.client5.http.impl.nio.PoolingAsyncClientConnectionManagerBuilder;
import org.apache.hc.core5.concurrent.FutureCallback;
import org.apache.hc.core5.http.ContentType;
import org.apache.hc.core5.http.Header;
import org.apache.hc.core5.http.HttpHeaders;
import org.apache.hc.core5.http.HttpResponse;
import org.apache.hc.core5.http2.HttpVersionPolicy;
import org.apache.hc.core5.util.Timeout;

/** HttpClient that calls back. */
final class AsyncClient implements Client {
    private final Plan plan;
    private final CloseableHttpAsyncClient client;

    AsyncClient(Plan plan, String storage) throws IOException {
        this.plan = plan;
        HttpAsyncClientBuilder builder = storage.equals("none") ? HttpAsyncClientBuilder.create() : caching(storage);
        client = builder
            .setConnectionManager(PoolingAsyncClientConnectionManagerBuilder.create()
                .setDefaultTlsConfig(TlsConfig.custom().setVersionPolicy(HttpVersionPolicy.FORCE_HTTP_1).build())
                .setMaxConnTotal(plan.users + 1)
                .setMaxConnPerRoute(plan.users + 1)
                .build())
            .setDefaultRequestConfig(RequestConfig.custom().setResponseTimeout(Timeout.ofSeconds(PATIENCE_SECONDS)).build())
            .disableContentCompression()
            .disableCookieManagement()
            .disableAuthCaching()
            .build();
        client.start();
    }

    private HttpAsyncClientBuilder caching(String storage) throws IOException {
        CachingHttpAsyncClientBuilder builder = CachingHttpAsyncClientBuilder.create().setCacheConfig(Storage.config(plan));
        if (storage.equals("memory")) {
            return builder.setHttpCacheStorage(new BasicHttpCacheStorage(Storage.config(plan)));
        }
        HttpAsyncCacheStorage store = new MemcachedHttpAsyncCacheStorage(Storage.memcached(plan));
        return builder.setHttpCacheStorage(store);
    }

    @Override
    public Runnable ask(Choice choice, Consumer<Answer> answered) {
        SimpleHttpRequest request = SimpleRequestBuilder.get(plan.urlOf(choice.url())).build();
        request.setHeader(HttpHeaders.ACCEPT_LANGUAGE, choice.language());
        if (choice.identity() >= 0) {
            request.setHeader(HttpHeaders.AUTHORIZATION, "Bearer " + choice.identity());
        }
        HttpCacheContext context = HttpCacheContext.create();
        Future<Answer> future = client.execute(SimpleRequestProducer.create(request), new Reader(context), context, new FutureCallback<>() {
            @Override
            public void completed(Answer answer) {
                answered.accept(answer);
            }

            @Override
            public void failed(Exception error) {
                answered.accept(Answer.failed(error));
            }

            @Override
            public void cancelled() {
                answered.accept(Answer.failed("cancelled"));
            }
        });
        return () -> future.cancel(true);
    }

    @Override
    public boolean blocks() {
        return false;
    }

    /** The whole body, and when it began. */
    private static final class Reader extends AbstractBinResponseConsumer<Answer> {
        private final HttpCacheContext context;
        private final ByteArrayOutputStream body = new ByteArrayOutputStream();
        private HttpResponse response;
        private long firstByte;

        Reader(HttpCacheContext context) {
            this.context = context;
        }

        @Override
        protected void start(HttpResponse response, ContentType contentType) {
            this.response = response;
        }

        @Override
        protected int capacityIncrement() {
            return Integer.MAX_VALUE;
        }

        @Override
        protected void data(ByteBuffer source, boolean endOfStream) {
            if (firstByte == 0 && source.hasRemaining()) {
                firstByte = System.nanoTime();
            }
            byte[] piece = new byte[source.remaining()];
            source.get(piece);
            body.writeBytes(piece);
        }

        @Override
        protected Answer buildResult() {
            Header cacheControl = response.getFirstHeader(HttpHeaders.CACHE_CONTROL);
            long lifetime = Answer.lifetime(cacheControl == null ? null : cacheControl.getValue());
            return new Answer(response.getCode(), Storage.outcome(context), lifetime, body.toByteArray(), firstByte, null);
        }

        @Override
        public void releaseResources() {}
    }
}
