package blog;

import java.net.InetSocketAddress;
import java.nio.file.Path;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** A blog as many are: embedded Jetty, Hibernate, H2. Arguments: the port, the port for the counters, and the directory for the database. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        var port = Integer.parseInt(arguments[0]);
        var counterPort = Integer.parseInt(arguments[1]);
        var blogs = new Blogs(Path.of(arguments[2]));
        blogs.fill();

        var counters = new Counters();
        var context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new PageServlet(blogs, counters)), "/");
        var server = new Server(new InetSocketAddress("127.0.0.1", port));
        server.setHandler(context);
        new CounterServer(counters, counterPort).start();
        server.start();
        server.join();
    }
}
