// Java's HttpClient as a client of HTTP/2: java Client.java CERTIFICATE URL

import java.io.FileInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

public class Client {
    public static void main(String[] arguments) throws Exception {
        var client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_2).sslContext(trusting(arguments[0])).build();
        var url = arguments[1];

        // The first answer has the connection agreed on; without it each request would open its own.
        client.send(get(url + "/page"), HttpResponse.BodyHandlers.discarding());
        var waiting = new ArrayList<CompletableFuture<HttpResponse<byte[]>>>();
        for (int number = 0; number < 200; number++) {
            // No more than the server takes at a time: this client does not wait for its turn.
            if (number % 100 == 0) {
                waiting.forEach(CompletableFuture::join);
            }
            waiting.add(client.sendAsync(get(url + "/page"), HttpResponse.BodyHandlers.ofByteArray()));
        }
        var counts = new TreeMap<String, Integer>();
        for (var answer : waiting) {
            counts.merge(said(answer.join()) + " " + answer.join().body().length, 1, Integer::sum);
        }
        counts.forEach((answer, count) -> System.out.println("page " + answer + " times " + count));
        for (int time = 0; time < 2; time++) {
            var answer = client.send(get(url + "/large"), HttpResponse.BodyHandlers.ofByteArray());
            System.out.println("large " + said(answer) + " " + answer.body().length);
        }
        var content = new byte[300_000];
        Arrays.fill(content, (byte) 'y');
        var upload = HttpRequest.newBuilder(URI.create(url + "/upload")).POST(HttpRequest.BodyPublishers.ofByteArray(content)).build();
        var answer = client.send(upload, HttpResponse.BodyHandlers.ofString());
        System.out.println("upload " + said(answer) + " " + answer.body());
    }

    static HttpRequest get(String url) {
        return HttpRequest.newBuilder(URI.create(url)).build();
    }

    static String said(HttpResponse<?> answer) {
        return (answer.version() == HttpClient.Version.HTTP_2 ? "HTTP/2.0" : "HTTP/1.1") + " " + answer.statusCode();
    }

    static SSLContext trusting(String file) throws Exception {
        var trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (var certificate = new FileInputStream(file)) {
            trusted.setCertificateEntry("site", CertificateFactory.getInstance("X.509").generateCertificate(certificate));
        }
        var managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(trusted);
        var context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }
}
