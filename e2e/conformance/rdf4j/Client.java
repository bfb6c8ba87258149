import java.math.BigInteger;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.stream.Collectors;
import org.eclipse.rdf4j.common.transaction.IsolationLevel;
import org.eclipse.rdf4j.common.transaction.IsolationLevels;
import org.eclipse.rdf4j.model.BNode;
import org.eclipse.rdf4j.model.IRI;
import org.eclipse.rdf4j.model.Literal;
import org.eclipse.rdf4j.model.Model;
import org.eclipse.rdf4j.model.Resource;
import org.eclipse.rdf4j.model.ValueFactory;
import org.eclipse.rdf4j.model.impl.SimpleValueFactory;
import org.eclipse.rdf4j.model.vocabulary.XSD;
import org.eclipse.rdf4j.query.BindingSet;
import org.eclipse.rdf4j.query.MalformedQueryException;
import org.eclipse.rdf4j.query.QueryEvaluationException;
import org.eclipse.rdf4j.query.QueryResults;
import org.eclipse.rdf4j.query.TupleQuery;
import org.eclipse.rdf4j.query.resultio.TupleQueryResultFormat;
import org.eclipse.rdf4j.repository.RepositoryException;
import org.eclipse.rdf4j.repository.RepositoryConnection;
import org.eclipse.rdf4j.repository.config.RepositoryConfig;
import org.eclipse.rdf4j.repository.http.HTTPRepository;
import org.eclipse.rdf4j.repository.http.config.HTTPRepositoryConfig;
import org.eclipse.rdf4j.repository.manager.RemoteRepositoryManager;
import org.eclipse.rdf4j.rio.RDFFormat;

/**
 * RDF4J's own Java client against a server: {@code java -cp JARS Client.java SERVER REPOSITORY}. Works in graphs of its
 * own and leaves nothing behind. Prints what was wrong and exits with 1; the last line of a success is {@code checks N}.
 */
public class Client {
    private static final ValueFactory MAKE = SimpleValueFactory.getInstance();
    private static final IRI GRAPH = MAKE.createIRI("urn:java:graph");
    private static final IRI OTHER = MAKE.createIRI("urn:java:other");
    private static final IRI S = MAKE.createIRI("urn:java:s");
    private static final IRI P = MAKE.createIRI("urn:java:p");
    private static final IRI Q = MAKE.createIRI("urn:java:q");
    private static int checks;

    public static void main(String[] given) {
        for (RDFFormat rdf : List.of(RDFFormat.BINARY, RDFFormat.NQUADS, RDFFormat.TRIG)) {
            for (TupleQueryResultFormat rows : List.of(
                    TupleQueryResultFormat.BINARY, TupleQueryResultFormat.JSON, TupleQueryResultFormat.SPARQL)) {
                HTTPRepository repository = repository(given, rdf, rows);
                try (RepositoryConnection connection = repository.getConnection()) {
                    plain(connection, rdf.getName() + ", " + rows.getName());
                } finally {
                    repository.shutDown();
                }
            }
        }
        HTTPRepository repository = repository(given, RDFFormat.BINARY, TupleQueryResultFormat.BINARY);
        try {
            for (IsolationLevel level : IsolationLevels.values()) {
                transaction(repository, level);
            }
            nodes(repository);
        } finally {
            repository.shutDown();
        }
        reported(given);
        manager(given[0], given[1]);
        System.out.println("checks " + checks);
    }

    private static HTTPRepository repository(String[] given, RDFFormat rdf, TupleQueryResultFormat rows) {
        HTTPRepository made = new HTTPRepository(given[0], given[1]);
        made.setPreferredRDFFormat(rdf);
        made.setPreferredTupleQueryResultFormat(rows);
        made.init();
        return made;
    }

    private static void plain(RepositoryConnection connection, String how) {
        Literal text = MAKE.createLiteral("zw\u00f6lf \"\t\\ \ud83d\ude00", "de");
        connection.clear(GRAPH, OTHER);
        connection.add(S, P, text, GRAPH);
        connection.add(S, P, MAKE.createLiteral(BigInteger.valueOf(12)), GRAPH);
        connection.add(S, Q, MAKE.createBNode("x"), GRAPH, OTHER);
        same(how + ": statements", 3L, connection.size(GRAPH));
        same(how + ": of two graphs", 4L, connection.size(GRAPH, OTHER));
        same(how + ": is there", true, connection.hasStatement(S, P, text, false, GRAPH));
        same(how + ": is not there", false, connection.hasStatement(S, P, text, false, OTHER));
        Model model = QueryResults.asModel(connection.getStatements(S, P, null, false, GRAPH));
        same(how + ": values", Set.of(text, MAKE.createLiteral(BigInteger.valueOf(12))), model.objects());
        same(how + ": their graph", Set.of((Resource) GRAPH), model.contexts());
        Set<Resource> contexts = connection.getContextIDs().stream().collect(Collectors.toSet());
        same(how + ": graphs", true, contexts.containsAll(Set.of(GRAPH, OTHER)));

        TupleQuery query = connection.prepareTupleQuery("SELECT ?o { GRAPH ?g { ?s <urn:java:p> ?o } } ORDER BY ?o");
        query.setBinding("g", GRAPH);
        List<BindingSet> rows = query.evaluate().stream().collect(Collectors.toList());
        same(how + ": rows", 2, rows.size());
        Set<Object> found = rows.stream().map(row -> row.getValue("o")).collect(Collectors.toSet());
        same(how + ": their values", Set.of(text, MAKE.createLiteral(BigInteger.valueOf(12))), found);
        same(how + ": ASK", true, connection.prepareBooleanQuery("ASK { GRAPH <urn:java:graph> { ?s ?p 12 } }").evaluate());
        Model made = QueryResults.asModel(connection.prepareGraphQuery(
                "CONSTRUCT { ?s <urn:java:made> ?o } WHERE { GRAPH <urn:java:graph> { ?s <urn:java:p> ?o } }").evaluate());
        same(how + ": CONSTRUCT", 2, made.size());
        connection.prepareUpdate("INSERT DATA { GRAPH <urn:java:graph> { <urn:java:s> <urn:java:p> 'u' } }").execute();
        same(how + ": after an update", 4L, connection.size(GRAPH));
        connection.remove(S, P, MAKE.createLiteral("u"), GRAPH);
        same(how + ": after a removal", 3L, connection.size(GRAPH));
        try {
            connection.prepareTupleQuery("SELECT ?o { ?s").evaluate();
            same(how + ": a malformed query", "an exception", "none");
        } catch (QueryEvaluationException expected) {
            same(how + ": why", MalformedQueryException.class, expected.getCause().getClass());
        }
        connection.setNamespace("java", "urn:java:");
        same(how + ": a namespace", "urn:java:", connection.getNamespace("java"));
        connection.removeNamespace("java");
        same(how + ": no namespace", null, connection.getNamespace("java"));
        connection.clear(GRAPH, OTHER);
        same(how + ": nothing is left", 0L, connection.size(GRAPH, OTHER));
    }

    private static void transaction(HTTPRepository repository, IsolationLevel level) {
        try (RepositoryConnection connection = repository.getConnection();
                RepositoryConnection outside = repository.getConnection()) {
            connection.begin(level);
            connection.add(S, P, MAKE.createLiteral("in"), GRAPH);
            connection.add(S, P, MAKE.createLiteral("out"), GRAPH);
            connection.prepareUpdate("INSERT DATA { GRAPH <urn:java:graph> { <urn:java:s> <urn:java:q> 1 } }").execute();
            connection.remove(S, P, MAKE.createLiteral("out"), GRAPH);
            same(level + ": its own writes", true, connection.hasStatement(S, P, MAKE.createLiteral("in"), false, GRAPH));
            same(level + ": its own removal", false, connection.hasStatement(S, P, MAKE.createLiteral("out"), false, GRAPH));
            same(level + ": its size", 2L, connection.size(GRAPH));
            List<BindingSet> rows = connection.prepareTupleQuery("SELECT ?o { GRAPH <urn:java:graph> { ?s ?p ?o } }")
                    .evaluate().stream().collect(Collectors.toList());
            same(level + ": its rows", 2, rows.size());
            if (!level.equals(IsolationLevels.NONE) && !level.equals(IsolationLevels.READ_UNCOMMITTED)) {
                same(level + ": seen from outside", 0L, outside.size(GRAPH));
            }
            connection.commit();
            same(level + ": after the commit", 2L, outside.size(GRAPH));
            connection.begin(level);
            connection.add(S, P, MAKE.createLiteral("undone"), GRAPH);
            connection.rollback();
            if (!level.equals(IsolationLevels.NONE)) {
                same(level + ": after a roll-back", 2L, outside.size(GRAPH));
            }
            connection.clear(GRAPH);
            same(level + ": nothing is left", 0L, outside.size(GRAPH));
        } catch (RepositoryException wrong) {
            throw new IllegalStateException(level + ": " + wrong.getMessage(), wrong);
        }
    }

    private static void nodes(HTTPRepository repository) {
        BNode node = MAKE.createBNode();
        BNode other = MAKE.createBNode();
        try (RepositoryConnection connection = repository.getConnection()) {
            connection.begin();
            connection.add(node, P, number(1), GRAPH);
            connection.prepareUpdate("INSERT DATA { GRAPH <urn:java:graph> { <urn:java:s> <urn:java:q> 1 } }").execute();
            connection.add(node, P, number(2), GRAPH);
            connection.add(other, Q, node, GRAPH);
            same("a node in a transaction", 1, nodesWithBoth(connection));
            connection.commit();
            same("a node of a transaction", 1, nodesWithBoth(connection));
            connection.add(node, P, number(3), GRAPH);
            same("its values", Set.of(number(1), number(2), number(3)), QueryResults
                    .asModel(connection.getStatements(node, P, null, false, GRAPH)).objects());
            same("what it is called", true, connection.hasStatement(other, Q, node, false, GRAPH));
            same("and no other", false, connection.hasStatement(other, P, null, false, GRAPH));
            connection.remove(node, P, number(1), GRAPH);
            same("after a removal", 0, nodesWithBoth(connection));
            connection.clear(GRAPH);
            same("no node is left", 0L, connection.size(GRAPH));
        }
    }

    /** What users of other stores reported, with the values that an RDF4J server gives. */
    private static void reported(String[] given) {
        HTTPRepository repository = repository(given, RDFFormat.BINARY, TupleQueryResultFormat.BINARY);
        try (RepositoryConnection connection = repository.getConnection()) {
            connection.add(S, P, Q);
            connection.add(S, P, Q, GRAPH);
            connection.remove(S, P, Q, (Resource) null);
            same("the null context", false, connection.hasStatement(S, P, Q, false, (Resource) null));
            same("beside the null context", true, connection.hasStatement(S, P, Q, false, GRAPH));
            Literal[] forms = {MAKE.createLiteral(42), MAKE.createLiteral(1.0), MAKE.createLiteral(42L),
                    MAKE.createLiteral("042", XSD.INTEGER), MAKE.createLiteral("1.10", XSD.DECIMAL),
                    MAKE.createLiteral("1", XSD.BOOLEAN)};
            for (Literal form : forms) {
                connection.add(S, Q, form, GRAPH);
                same(form + ": is there", true, connection.hasStatement(S, Q, form, false, GRAPH));
                same(form + ": found", 1L, connection.getStatements(null, Q, form, false, GRAPH).stream().count());
                connection.begin();
                same(form + ": in a transaction", true, connection.hasStatement(S, Q, form, false, GRAPH));
                connection.remove(S, Q, form, GRAPH);
                same(form + ": removed in it", false, connection.hasStatement(S, Q, form, false, GRAPH));
                connection.commit();
            }
            connection.add(S, P, MAKE.createLiteral("cr\r\nlf"), OTHER);
            same("a carriage return", Set.of("cr\r\nlf"), QueryResults
                    .asModel(connection.getStatements(S, P, null, false, OTHER)).objects().stream()
                    .map(value -> value.stringValue()).collect(Collectors.toSet()));
            connection.clear(GRAPH, OTHER);
        } finally {
            repository.shutDown();
        }
    }

    private static void manager(String server, String name) {
        RemoteRepositoryManager manager = RemoteRepositoryManager.getInstance(server);
        manager.init();
        try {
            same("repositories", Set.of(name), manager.getRepositoryIDs());
            same("a configuration is there", true, manager.hasRepositoryConfig(name));
            same("no other is there", false, manager.hasRepositoryConfig("another"));
            same("it takes writes", true, manager.getRepositoryInfo(name).isWritable());
            RepositoryConfig config = manager.getRepositoryConfig(name);
            same("its id", name, config.getID());
            HTTPRepositoryConfig place = (HTTPRepositoryConfig) config.getRepositoryImplConfig();
            same("its place", server + "/repositories/" + name, place.getURL());
            try (RepositoryConnection connection = manager.getRepository(name).getConnection()) {
                connection.add(S, P, Q, GRAPH);
                same("through the manager", 1L, connection.size(GRAPH));
                connection.clear(GRAPH);
            }
            refused("create another", () -> manager.addRepositoryConfig(new RepositoryConfig("another", place)));
            refused("configure it", () -> manager.addRepositoryConfig(new RepositoryConfig(name, place)));
            refused("remove it", () -> manager.removeRepository(name));
        } finally {
            manager.shutDown();
        }
    }

    private static void refused(String what, Runnable action) {
        try {
            action.run();
        } catch (RepositoryException expected) {
            same(what + ": why", true, String.valueOf(expected.getMessage()).contains("one repository"));
            return;
        }
        same(what, "an exception", "none");
    }

    private static Literal number(int value) {
        return MAKE.createLiteral(BigInteger.valueOf(value));
    }

    private static int nodesWithBoth(RepositoryConnection connection) {
        return (int) connection.prepareTupleQuery("SELECT ?b { GRAPH <urn:java:graph> { ?b <urn:java:p> 1, 2 } }")
                .evaluate().stream().count();
    }

    private static void same(String what, Object wanted, Object found) {
        if (!Objects.equals(wanted, found)) {
            throw new AssertionError(what + ": " + found + " instead of " + wanted);
        }
        checks++;
    }
}
