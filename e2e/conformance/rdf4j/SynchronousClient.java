import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.eclipse.rdf4j.model.IRI;
import org.eclipse.rdf4j.model.ValueFactory;
import org.eclipse.rdf4j.model.impl.SimpleValueFactory;
import org.eclipse.rdf4j.repository.RepositoryConnection;
import org.eclipse.rdf4j.repository.http.HTTPRepository;

/**
 * RDF4J's own Java client, step by step: {@code java -cp JARS SynchronousClient.java SERVER REPOSITORY}. It reads one
 * step from each line, {@code CONNECTION ACTION [GRAPH SUBJECT]}, and runs steps of different connections side by side.
 * It answers each with {@code CONNECTION ACTION OUTCOME}: {@code done}, or the exception with its causes, in one line.
 */
public class SynchronousClient {
    private static final ValueFactory MAKE = SimpleValueFactory.getInstance();
    private static final IRI PREDICATE = MAKE.createIRI("urn:java:p");

    public static void main(String[] given) throws IOException, InterruptedException {
        HTTPRepository repository = new HTTPRepository(given[0], given[1]);
        repository.init();
        RepositoryConnection plain = repository.getConnection();
        RepositoryConnection transaction = repository.getConnection();
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.trim().split(" ");
            RepositoryConnection connection = words[0].equals("plain") ? plain : transaction;
            Thread step = new Thread(() -> answer(words, connection));
            step.setDaemon(true);
            step.start();
        }
    }

    private static void answer(String[] words, RepositoryConnection connection) {
        String outcome = "done";
        synchronized (connection) {
            try {
                carryOut(words, connection);
            } catch (RuntimeException failed) {
                outcome = describe(failed);
            }
        }
        synchronized (System.out) {
            System.out.println(words[0] + " " + words[1] + " " + outcome);
        }
    }

    private static void carryOut(String[] words, RepositoryConnection connection) {
        switch (words[1]) {
            case "begin" -> connection.begin();
            case "add" -> connection.add(MAKE.createIRI(words[3]), PREDICATE, MAKE.createLiteral("x"), MAKE.createIRI(words[2]));
            case "commit" -> connection.commit();
            case "rollback" -> connection.rollback();
            default -> throw new IllegalArgumentException(words[1]);
        }
    }

    private static String describe(Throwable failed) {
        StringBuilder text = new StringBuilder();
        for (Throwable one = failed; one != null; one = one.getCause()) {
            text.append(one.getClass().getSimpleName()).append(": ").append(one.getMessage()).append("; ");
        }
        return text.toString().replace('\n', ' ');
    }
}
