import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.http.NoHttpResponseException;
import org.apache.http.impl.client.HttpClients;
import org.eclipse.rdf4j.query.BooleanQuery;
import org.eclipse.rdf4j.query.GraphQuery;
import org.eclipse.rdf4j.query.TupleQuery;
import org.eclipse.rdf4j.query.Update;
import org.eclipse.rdf4j.repository.Repository;
import org.eclipse.rdf4j.repository.RepositoryConnection;
import org.eclipse.rdf4j.repository.config.AbstractRepositoryImplConfig;
import org.eclipse.rdf4j.repository.config.RepositoryFactory;
import org.eclipse.rdf4j.repository.config.RepositoryImplConfig;
import org.eclipse.rdf4j.repository.http.HTTPRepository;
import org.eclipse.rdf4j.repository.sparql.SPARQLRepository;
import org.eclipse.rdf4j.testsuite.query.parser.sparql.SPARQLUpdateTest;
import org.eclipse.rdf4j.testsuite.query.parser.sparql.manifest.SPARQL10QueryComplianceTest;
import org.eclipse.rdf4j.testsuite.query.parser.sparql.manifest.SPARQL11QueryComplianceTest;
import org.eclipse.rdf4j.testsuite.query.parser.sparql.manifest.SPARQL11UpdateComplianceTest;
import org.eclipse.rdf4j.testsuite.repository.CascadeValueExceptionTest;
import org.eclipse.rdf4j.testsuite.repository.GraphQueryResultTest;
import org.eclipse.rdf4j.testsuite.repository.OptimisticIsolationTest;
import org.eclipse.rdf4j.testsuite.repository.RDFStarSupportTest;
import org.eclipse.rdf4j.testsuite.repository.RepositoryConnectionTest;
import org.eclipse.rdf4j.testsuite.repository.RepositoryTest;
import org.eclipse.rdf4j.testsuite.repository.SparqlAggregatesTest;
import org.eclipse.rdf4j.testsuite.repository.SparqlDatasetTest;
import org.eclipse.rdf4j.testsuite.repository.SparqlOrderByTest;
import org.eclipse.rdf4j.testsuite.repository.SparqlRegexTest;
import org.eclipse.rdf4j.testsuite.repository.SparqlSetBindingTest;
import org.eclipse.rdf4j.testsuite.repository.TupleQueryResultTest;
import org.eclipse.rdf4j.testsuite.repository.optimistic.DeadLockTest;
import org.eclipse.rdf4j.testsuite.repository.optimistic.DeleteInsertTest;
import org.eclipse.rdf4j.testsuite.repository.optimistic.IsolationLevelTest;
import org.eclipse.rdf4j.testsuite.repository.optimistic.LinearTest;
import org.eclipse.rdf4j.testsuite.repository.optimistic.ModificationTest;
import org.eclipse.rdf4j.testsuite.repository.optimistic.MonotonicTest;
import org.eclipse.rdf4j.testsuite.repository.optimistic.RemoveIsolationTest;
import org.eclipse.rdf4j.testsuite.repository.optimistic.SerializableTest;
import org.eclipse.rdf4j.testsuite.repository.optimistic.SnapshotTest;
import org.eclipse.rdf4j.testsuite.sparql.RepositorySPARQLComplianceTestSuite;
import org.junit.jupiter.api.extension.DynamicTestInvocationContext;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.InvocationInterceptor;
import org.junit.jupiter.api.extension.ReflectiveInvocationContext;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestDescriptor;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.Launcher;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.TestPlan;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.opentest4j.TestAbortedException;

/**
 * RDF4J's own test suites against a server.
 *
 * <p>Arguments: {@code rdf4j SERVER REPOSITORY} through {@code HTTPRepository}, {@code jetty SERVER REPOSITORY} the same
 * without {@code Expect: 100-continue}, which a loaded Jetty 9 sometimes leaves without an answer, or {@code sparql
 * QUERY UPDATE}, two SPARQL endpoints through {@code SPARQLRepository}; then the groups with commas, and which tests: a file with their
 * names, or {@code ~WORDS} for those whose name contains the words. Writes one line per test: name, outcome,
 * milliseconds and what went wrong, with tabs between; before each group {@code group NAME}.
 */
public class Suites {
	private static final String NOT_ASKED = "not asked";
	private static final int MESSAGE_MAX = 1500;

	private static String kind;
	private static String first;
	private static String second;
	private static Predicate<String> asked;
	/** Null where words of the names are given. */
	private static Set<String> askedNames;

	private static final Map<String, List<Class<?>>> GROUPS = new LinkedHashMap<>();

	static {
		GROUPS.put("http", List.of(HttpCascadeValueException.class, HttpConnection.class, HttpGraphQueryResult.class,
				HttpRepository.class, HttpSparqlAggregates.class, HttpSparqlDataset.class, HttpSparqlOrderBy.class,
				HttpSparqlRegex.class, HttpSparqlSetBinding.class, HttpTupleQueryResult.class));
		GROUPS.put("isolation", List.of(DeadLockTest.class, DeleteInsertTest.class, LinearTest.class,
				ModificationTest.class, RemoveIsolationTest.class, IsolationLevelTest.class, MonotonicTest.class,
				SnapshotTest.class, SerializableTest.class));
		GROUPS.put("update", List.of(HttpUpdate.class));
		GROUPS.put("rdfstar", List.of(HttpRdfStar.class));
		GROUPS.put("w3c", List.of(HttpW3c10Query.class, HttpW3c11Query.class, HttpW3c11Update.class));
		GROUPS.put("compliance", List.of(HttpCompliance.class));
	}

	private static Repository open() {
		if (kind.equals("sparql")) {
			return new SPARQLRepository(first, second);
		}
		HTTPRepository made = new HTTPRepository(first, second);
		if (kind.equals("jetty")) {
			// As RDF4J's own, it sends again what a kept connection did not take.
			made.setHttpClient(HttpClients.custom()
					.setRetryHandler((wrong, times, context) -> wrong instanceof NoHttpResponseException && times < 3)
					.build());
		}
		return made;
	}

	/**
	 * The W3C's tests refuse a query or an update whose hash code is that of any object; RDF4J's own client makes such
	 * ones.
	 */
	private static Repository openWithHashes() {
		return (Repository) withHashes(open(), Repository.class);
	}

	private static Object withHashes(Object inner, Class<?> as) {
		return Proxy.newProxyInstance(Suites.class.getClassLoader(), new Class<?>[] { as }, (proxy, method, values) -> {
			if (method.getName().equals("hashCode") && method.getParameterCount() == 0) {
				return inner.getClass().getName().hashCode();
			}
			Object found;
			try {
				found = method.invoke(inner, values);
			} catch (InvocationTargetException wrong) {
				throw wrong.getCause();
			}
			for (Class<?> each : List.of(RepositoryConnection.class, TupleQuery.class, GraphQuery.class,
					BooleanQuery.class, Update.class)) {
				if (each.isInstance(found)) {
					return withHashes(found, each);
				}
			}
			return found;
		});
	}

	/** Makes a repository of the server that is tested, whatever it is given. */
	private static class TestedRepositoryFactory implements RepositoryFactory {
		@Override
		public String getRepositoryType() {
			return "tested";
		}

		@Override
		public RepositoryImplConfig getConfig() {
			return new AbstractRepositoryImplConfig("tested") {
			};
		}

		@Override
		public Repository getRepository(RepositoryImplConfig config) {
			return open();
		}
	}

	/** Leaves out each test that is not asked for. */
	static class AskedTests implements InvocationInterceptor {
		@Override
		public void interceptTestMethod(Invocation<Void> invocation, ReflectiveInvocationContext<Method> method,
				ExtensionContext context) throws Throwable {
			proceed(invocation, context);
		}

		@Override
		public void interceptTestTemplateMethod(Invocation<Void> invocation,
				ReflectiveInvocationContext<Method> method, ExtensionContext context) throws Throwable {
			proceed(invocation, context);
		}

		@Override
		public void interceptDynamicTest(Invocation<Void> invocation, DynamicTestInvocationContext dynamic,
				ExtensionContext context) throws Throwable {
			proceed(invocation, context);
		}

		private void proceed(Invocation<Void> invocation, ExtensionContext context) throws Throwable {
			if (asked.test(nameOf(context))) {
				invocation.proceed();
			} else {
				invocation.skip();
				throw new TestAbortedException(NOT_ASKED);
			}
		}

		private static String nameOf(ExtensionContext context) {
			String name = "";
			ExtensionContext at = context;
			while (at.getTestMethod().isPresent() || at.getTestClass().isEmpty()) {
				name = withoutParameters(at.getDisplayName()) + (name.isEmpty() ? "" : " " + name);
				at = at.getParent().orElseThrow();
			}
			return at.getRequiredTestClass().getSimpleName() + "." + name;
		}
	}

	private static String withoutParameters(String display) {
		return display.matches("[A-Za-z0-9_]+\\(.*\\)") ? display.substring(0, display.indexOf('(')) : display;
	}

	@ExtendWith(AskedTests.class)
	public static class HttpCascadeValueException extends CascadeValueExceptionTest {
		@Override
		protected Repository newRepository() {
			return open();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpConnection extends RepositoryConnectionTest {
		@Override
		protected Repository createRepository(File folder) {
			return open();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpGraphQueryResult extends GraphQueryResultTest {
		@Override
		protected Repository newRepository() {
			return open();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpRepository extends RepositoryTest {
		@Override
		protected Repository createRepository() {
			return open();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpSparqlAggregates extends SparqlAggregatesTest {
		@Override
		protected Repository newRepository() {
			return open();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpSparqlDataset extends SparqlDatasetTest {
		@Override
		protected Repository newRepository() {
			return open();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpSparqlOrderBy extends SparqlOrderByTest {
		@Override
		protected Repository newRepository() {
			return open();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpSparqlRegex extends SparqlRegexTest {
		@Override
		protected Repository newRepository() {
			return open();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpSparqlSetBinding extends SparqlSetBindingTest {
		@Override
		protected Repository newRepository() {
			return open();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpTupleQueryResult extends TupleQueryResultTest {
		@Override
		protected Repository newRepository() {
			return open();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpUpdate extends SPARQLUpdateTest {
		@Override
		protected Repository newRepository() {
			return open();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpRdfStar extends RDFStarSupportTest {
		@Override
		protected Repository createRepository() {
			return open();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpW3c10Query extends SPARQL10QueryComplianceTest {
		@Override
		protected Repository newRepository() {
			return openWithHashes();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpW3c11Query extends SPARQL11QueryComplianceTest {
		@Override
		protected Repository newRepository() {
			return openWithHashes();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpW3c11Update extends SPARQL11UpdateComplianceTest {
		@Override
		protected Repository newRepository() {
			return openWithHashes();
		}
	}

	@ExtendWith(AskedTests.class)
	public static class HttpCompliance extends RepositorySPARQLComplianceTestSuite {
		public HttpCompliance() {
			super(new TestedRepositoryFactory());
		}
	}

	/** Writes a line per test. */
	private static class Lines implements TestExecutionListener {
		private final PrintStream out;
		private final Map<String, Long> began = new HashMap<>();
		private TestPlan plan;

		Lines(PrintStream out) {
			this.out = out;
		}

		@Override
		public void testPlanExecutionStarted(TestPlan started) {
			plan = started;
		}

		@Override
		public void executionStarted(TestIdentifier test) {
			began.put(test.getUniqueId(), System.nanoTime());
		}

		@Override
		public void executionSkipped(TestIdentifier test, String reason) {
			write(test, "skipped", reason);
		}

		@Override
		public void executionFinished(TestIdentifier test, TestExecutionResult result) {
			String why = result.getThrowable().map(Lines::describe).orElse("");
			boolean failed = result.getStatus() == TestExecutionResult.Status.FAILED;
			// A class or a method that makes tests is told only if it made none.
			if (!test.isTest() && !failed) {
				return;
			}
			boolean passed = result.getStatus() == TestExecutionResult.Status.SUCCESSFUL;
			write(test, failed ? "failed" : passed ? "passed" : "skipped", why);
		}

		private static String describe(Throwable wrong) {
			StringBuilder text = new StringBuilder(wrong.toString());
			for (Throwable cause = wrong.getCause(); cause != null; cause = cause.getCause()) {
				text.append(" <- ").append(cause);
			}
			StackTraceElement[] places = wrong.getStackTrace();
			for (StackTraceElement place : places) {
				if (place.getClassName().contains("testsuite")) {
					return place.getFileName() + ":" + place.getLineNumber() + " " + text;
				}
			}
			return text.toString();
		}

		private void write(TestIdentifier test, String outcome, String why) {
			String name = "";
			TestIdentifier at = test;
			while (at.getSource().filter(ClassSource.class::isInstance).isEmpty()) {
				name = withoutParameters(at.getDisplayName()) + (name.isEmpty() ? "" : " " + name);
				at = plan.getParent(at).orElseThrow();
			}
			String suite = ((ClassSource) at.getSource().orElseThrow()).getJavaClass().getSimpleName();
			// One that is not asked may still fail in what the suite does after each test.
			if (test.isTest() && !asked.test(suite + "." + name)) {
				return;
			}
			long began = this.began.getOrDefault(test.getUniqueId(), System.nanoTime());
			String text = why.length() > MESSAGE_MAX ? why.substring(0, MESSAGE_MAX) : why;
			out.println(String.join("\t", oneLine(suite + "." + name), outcome,
					Long.toString((System.nanoTime() - began) / 1_000_000), oneLine(text)));
			out.flush();
		}

		private static String oneLine(String text) {
			return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t");
		}
	}

	/**
	 * For the tests of JUnit 4, which have no interceptors, and for methods without a test that is asked: their suite
	 * would empty the repository before each of their tests.
	 */
	private static FilterResult isAsked(TestDescriptor test) {
		if (!test.getUniqueId().toString().contains("junit-vintage")) {
			return FilterResult.includedIf(test.getSource().filter(MethodSource.class::isInstance)
					.map(source -> isMethodAsked((MethodSource) source)).orElse(true));
		}
		if (!test.isTest()) {
			return FilterResult.included("");
		}
		String suite = test.getParent().map(TestDescriptor::getDisplayName).orElse("");
		String name = suite.substring(suite.lastIndexOf('.') + 1) + "." + test.getDisplayName();
		return FilterResult.includedIf(asked.test(name));
	}

	/** A method may make several tests, whose names are longer. */
	private static boolean isMethodAsked(MethodSource method) {
		String suite = method.getClassName();
		String name = suite.substring(suite.lastIndexOf('$') + 1) + "." + method.getMethodName();
		return askedNames == null
				|| askedNames.stream().anyMatch(each -> each.equals(name) || each.startsWith(name + " "));
	}

	public static void main(String[] arguments) throws Exception {
		kind = arguments[0];
		first = arguments[1];
		second = arguments[2];
		String which = arguments[4];
		if (which.startsWith("~")) {
			asked = name -> name.contains(which.substring(1));
		} else {
			Set<String> names = new HashSet<>(Files.readAllLines(Path.of(which)));
			asked = names::contains;
			askedNames = names;
			// A suite without a test that is asked is left out: it would empty the repository before each of them.
			GROUPS.replaceAll((group, suites) -> suites.stream()
					.filter(suite -> names.stream().anyMatch(name -> name.startsWith(suite.getSimpleName() + ".")))
					.collect(Collectors.toList()));
		}
		((ch.qos.logback.classic.Logger) org.slf4j.LoggerFactory.getLogger(org.slf4j.Logger.ROOT_LOGGER_NAME))
				.setLevel(ch.qos.logback.classic.Level.OFF);
		OptimisticIsolationTest.setRepositoryFactory(new TestedRepositoryFactory());
		PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
		System.setOut(System.err);
		Launcher launcher = LauncherFactory.create();
		for (String group : arguments[3].split(",")) {
			out.println("group " + group);
			LauncherDiscoveryRequestBuilder request = LauncherDiscoveryRequestBuilder.request()
					.configurationParameter("junit.jupiter.execution.timeout.testable.method.default", "120 s")
					.configurationParameter("junit.jupiter.execution.timeout.thread.mode.default", "SEPARATE_THREAD")
					.filters((PostDiscoveryFilter) Suites::isAsked);
			if (GROUPS.get(group).isEmpty()) {
				continue;
			}
			for (Class<?> suite : GROUPS.get(group)) {
				request.selectors(selectClass(suite));
			}
			launcher.execute(request.build(), new Lines(out));
		}
		System.exit(0);
	}
}
