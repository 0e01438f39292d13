package blog;

import java.nio.file.Path;
import java.time.Instant;
import java.util.List;
import java.util.Random;
import org.h2.jdbcx.JdbcConnectionPool;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.AvailableSettings;
import org.hibernate.cfg.Configuration;

/** The table of posts, and the two questions that every page asks. Both read all of it. */
class Blogs {
    static final int ROWS = 8_000;
    static final int PER_PAGE = 5;

    /** What a row weighs decides what a full scan costs: see the README beside this. */
    static final int TEXT_LENGTH = 2_000;

    /** H2's page cache of 1 MB is far smaller than the table, so that each scan decodes every row; nothing is tidied up between scans. */
    private static final String SETTINGS = ";CACHE_SIZE=1024;AUTO_COMPACT_FILL_RATE=0";

    private static final int CONNECTIONS = 10;
    private static final String[] WORDS = ("cache page server request answer time queue thread load memory disk network proxy header "
                    + "origin client stale fresh hit miss and the of a to in is that it was for on as with by").split(" ");

    private final SessionFactory sessions;

    Blogs(Path directory) {
        var url = "jdbc:h2:file:" + directory.resolve("blog").toAbsolutePath() + SETTINGS;
        var pool = JdbcConnectionPool.create(url, "blog", "blog");
        pool.setMaxConnections(CONNECTIONS);
        var configuration = new Configuration().addAnnotatedClass(Post.class);
        configuration.getProperties().put(AvailableSettings.JAKARTA_NON_JTA_DATASOURCE, pool);
        configuration.setProperty(AvailableSettings.HBM2DDL_AUTO, "create");
        sessions = configuration.buildSessionFactory();
    }

    /** Writes all rows. The same numbers make the same texts in every run. */
    void fill() {
        var random = new Random(1);
        sessions.inTransaction(session -> {
            session.setJdbcBatchSize(500);
            for (int id = 1; id <= ROWS; id++) {
                session.persist(new Post(id, "Author " + id % 37, "Post number " + id, Instant.EPOCH.plusSeconds(id * 3_600L), text(random)));
                if (id % 500 == 0) {
                    session.flush();
                    session.clear();
                }
            }
        });
    }

    /** Five posts by chance: the database gives every row a random number, and sorts. */
    List<Post> someByChance() {
        return sessions.fromSession(session -> session.createQuery("from Post order by rand()", Post.class)
                .setMaxResults(PER_PAGE)
                .setReadOnly(true)
                .list());
    }

    /** How many rows the dice like today: a second look at every row. */
    long countByChance() {
        return sessions.fromSession(
                session -> session.createQuery("select count(*) from Post where rand() < 0.7", Long.class).getSingleResult());
    }

    private static String text(Random random) {
        var text = new StringBuilder(TEXT_LENGTH);
        while (text.length() < TEXT_LENGTH) {
            text.append(WORDS[random.nextInt(WORDS.length)]).append(' ');
        }
        return text.substring(0, TEXT_LENGTH);
    }
}
