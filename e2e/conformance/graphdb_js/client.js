// GraphDB's JavaScript client against a server: node client.js SERVER REPOSITORY. Works in graphs of its own and leaves
// nothing behind. Says what was wrong on stderr and exits with 1; the last line of a success is "checks N".
'use strict';

const assert = require('node:assert/strict');
const {Readable} = require('node:stream');
const {http, model, parser, query, repository, server, transaction} = require('graphdb');

const GRAPH = 'urn:graphdbjs:graph';
const OTHER = 'urn:graphdbjs:other';
const S = 'urn:graphdbjs:s';
const P = 'urn:graphdbjs:p';
const Q = 'urn:graphdbjs:q';
const STRING = 'http://www.w3.org/2001/XMLSchema#string';
const {RDFMimeType, QueryContentType} = http;
let checks = 0;

function same(what, found, wanted) {
  assert.deepEqual(found, wanted, what);
  checks += 1;
}

async function whole(stream) {
  const pieces = [];
  for await (const piece of stream) {
    pieces.push(piece);
  }
  return Buffer.concat(pieces.map((piece) => Buffer.from(piece))).toString();
}

async function values(client, text, change = (asked) => asked) {
  const asked = new query.GetQueryPayload()
      .setQuery(text)
      .setQueryType(query.QueryType.SELECT)
      .setResponseType(RDFMimeType.SPARQL_RESULTS_JSON);
  const found = [];
  for await (const row of await client.query(change(asked))) {
    found.push(row.o.value);
  }
  return found.sort();
}

const ofGraph = (graph) => `SELECT ?o { GRAPH <${graph}> { ?s ?p ?o } }`;
const insert = (value) => `INSERT DATA { GRAPH <${GRAPH}> { <${S}> <${Q}> "${value}" } }`;

function statement(text, graph) {
  // Without a type it would be sent as <xsd:string>, which is another one.
  const made = new repository.AddStatementPayload().setSubject(S).setPredicate(P);
  return made.setObjectLiteral(text, STRING).setContext(graph);
}

async function statements(client) {
  await client.deleteStatements(undefined, undefined, undefined, [GRAPH, OTHER]);
  await client.add(statement('zwölf "\t\\ 😀', GRAPH));
  await client.add(new repository.AddStatementPayload()
      .setSubject(S).setPredicate(Q).setObject('urn:graphdbjs:o').setContext([GRAPH, OTHER]));
  same('sizes', [await client.getSize(GRAPH), await client.getSize([GRAPH, OTHER])], [2, 3]);
  const asked = new repository.GetStatementsPayload().setSubject(S).setContext(GRAPH);
  const text = await client.get(asked.setResponseType(RDFMimeType.N_QUADS));
  same('as text', text.trim().split('\n').length, 2);
  await client.upload(Readable.from([`<${S}> <${P}> 1, 2 .`]), RDFMimeType.TURTLE, GRAPH);
  same('after an upload', await client.getSize(GRAPH), 4);
  await client.overwrite(Readable.from([`<x> <${P}> "over" .`]), RDFMimeType.TURTLE, OTHER, 'urn:graphdbjs/');
  same('after an overwriting one', await values(client, ofGraph(OTHER)), ['over']);
  const streamed = await client.download(new repository.GetStatementsPayload()
      .setContext(OTHER).setResponseType(RDFMimeType.N_TRIPLES));
  same('a download', (await whole(streamed)).trim(), `<urn:graphdbjs/x> <${P}> "over" .`);
  const quads = model.TermConverter.getQuads(S, P, 'urn:graphdbjs:put', [OTHER]);
  await client.putQuads(quads, OTHER);
  same('after quads that overwrite', await values(client, ofGraph(OTHER)), ['urn:graphdbjs:put']);
  await client.addQuads(quads, GRAPH);
  await client.deleteStatements(undefined, P, undefined, GRAPH);
  same('after a deletion', await values(client, ofGraph(GRAPH)), ['urn:graphdbjs:o']);
}

async function queries(client) {
  for (const how of [QueryContentType.X_WWW_FORM_URLENCODED, QueryContentType.SPARQL_UPDATE]) {
    await client.update(new query.UpdateQueryPayload().setQuery(insert(how)).setContentType(how));
  }
  const both = [QueryContentType.SPARQL_UPDATE, QueryContentType.X_WWW_FORM_URLENCODED].sort();
  const select = `SELECT ?o { GRAPH <${GRAPH}> { <${S}> <${Q}> ?o FILTER(isLiteral(?o)) } }`;
  for (const how of [QueryContentType.X_WWW_FORM_URLENCODED, QueryContentType.SPARQL_QUERY]) {
    same(`a query as ${how}`, await values(client, select, (asked) => asked.setContentType(how)), both);
  }
  const one = await values(client, `${select} ORDER BY ?o`, (asked) => asked.setLimit(1).setOffset(1).setTimeout(30));
  same('limit and offset', one, both.slice(1));
  const bound = await values(client, select, (asked) => asked.addBinding('$o', `"${both[0]}"`));
  same('a binding', bound, both.slice(0, 1));
  const ask = new query.GetQueryPayload()
      .setQuery(`ASK { GRAPH <${GRAPH}> { <${S}> ?p ?o } }`)
      .setQueryType(query.QueryType.ASK);
  same('ask', await whole(await client.query(ask.setResponseType(RDFMimeType.BOOLEAN_RESULT))), 'true');
  const construct = new query.GetQueryPayload()
      .setQuery(`CONSTRUCT { ?s ?p ?o } WHERE { GRAPH <${OTHER}> { ?s ?p ?o } }`)
      .setQueryType(query.QueryType.CONSTRUCT);
  const made = await whole(await client.query(construct.setResponseType(RDFMimeType.N_TRIPLES)));
  same('construct', made.trim(), `<${S}> <${P}> <urn:graphdbjs:put> .`);
  const wrong = new query.UpdateQueryPayload().setQuery('INSERT nonsense');
  await assert.rejects(client.update(wrong), (error) => error.response.status === 400);
  checks += 1;
}

async function namespaces(client) {
  await client.saveNamespace('graphdbjs', 'urn:graphdbjs:');
  same('a namespace', (await client.getNamespace('graphdbjs')).value, 'urn:graphdbjs:');
  same('all of them', (await client.getNamespaces()).some((one) => one.getPrefix() === 'graphdbjs'), true);
  await client.deleteNamespace('graphdbjs');
  await assert.rejects(client.getNamespace('graphdbjs'), (error) => error.response.status === 404);
  checks += 1;
}

async function transactions(client) {
  for (const level of Object.values(transaction.TransactionIsolationLevel)) {
    const before = await client.getSize(GRAPH);
    const open = await client.beginTransaction(level);
    open.registerParser(new parser.SparqlJsonResultParser());
    await open.add(statement(level, GRAPH));
    await open.upload(Readable.from([`<${S}> <${P}> "up ${level}" .`]), RDFMimeType.TURTLE, GRAPH);
    await open.update(new query.UpdateQueryPayload()
        .setQuery(insert(level)).setContentType(QueryContentType.X_WWW_FORM_URLENCODED));
    same(`${level}: inside`, await open.getSize(GRAPH), before + 3);
    same(`${level}: outside`, await client.getSize(GRAPH), before);
    const written = `SELECT ?o { GRAPH <${GRAPH}> { <${S}> ?p ?o FILTER(?o IN ("${level}", "up ${level}")) } }`;
    same(`${level}: what it wrote`, await values(open, written), [level, level, `up ${level}`]);
    await open.deleteData(`<${GRAPH}> { <${S}> <${P}> "up ${level}" }`);
    await open.commit();
    same(`${level}: after the commit`, await values(client, written), [level, level]);
    const undone = await client.beginTransaction(level);
    await undone.add(statement(`undone ${level}`, GRAPH));
    same(`${level}: before the rollback`, await undone.getSize(GRAPH), before + 3);
    await undone.rollback();
    same(`${level}: after the rollback`, await client.getSize(GRAPH), before + 2);
  }
}

async function main(base, id) {
  const asked = new server.ServerClient(new server.ServerClientConfig(base));
  same('repositories', [await asked.getRepositoryIDs(), await asked.hasRepository(id)], [[id], true]);
  const config = new repository.RepositoryClientConfig(base)
      .setEndpoints([`${base}/repositories/${id}`])
      .setReadTimeout(60000)
      .setWriteTimeout(60000);
  const client = new repository.RDFRepositoryClient(config);
  client.registerParser(new parser.SparqlJsonResultParser());
  try {
    await statements(client);
    await queries(client);
    await namespaces(client);
    await transactions(client);
  } finally {
    await client.deleteStatements(undefined, undefined, undefined, [GRAPH, OTHER]);
  }
  same('at the end', await client.getSize([GRAPH, OTHER]), 0);
  console.log(`checks ${checks}`);
}

// Uploads leave the answer's stream unread, and its connection open: without this node would wait for its time-out.
main(...process.argv.slice(2)).then(() => process.exit(0), (error) => {
  const answer = error.response;
  console.error(answer ? `${error.message}: ${answer.config.method} ${answer.config.url} ${answer.data}` : error);
  process.exit(1);
});
