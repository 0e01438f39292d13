package blog;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;

/** What the application has seen: GET tells, DELETE counts from zero. On a port of its own, so that it answers when no page does. */
class CounterServer {
    private final Counters counters;
    private final HttpServer server;

    CounterServer(Counters counters, int port) throws IOException {
        this.counters = counters;
        server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/_origin/counters", this::answer);
    }

    void start() {
        server.start();
    }

    private void answer(HttpExchange exchange) throws IOException {
        if (exchange.getRequestMethod().equals("DELETE")) {
            counters.reset();
        }
        var answer = counters.json().getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", "application/json");
        exchange.sendResponseHeaders(200, answer.length);
        try (var body = exchange.getResponseBody()) {
            body.write(answer);
        }
    }
}
