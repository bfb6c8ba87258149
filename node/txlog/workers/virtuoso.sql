-- What makes a Virtuoso 7 a worker: one procedure behind http://HOST:PORT/txlog that executes what one request asks
-- in one SQL transaction. Virtuoso's own SPARQL end point commits each operation of a request by itself.
-- Run as dba, as often as wanted:  isql-vt HOST:SQLPORT dba PASSWORD virtuoso.sql
-- Why so: docs/decisions/0017-how-a-virtuoso-is-guarded.md. Sources: Virtuoso's sparql.sql (RDF_TTL2HASH,
-- RDF_INSERT_TRIPLES, RDF_DELETE_TRIPLES) and its manual's chapter on SOAP procedures over plain HTTP.

create procedure DB.DBA.TXLOG_INSTALL ()
{
  if (not exists (select 1 from DB.DBA.SYS_KEYS where KEY_TABLE = 'DB.DBA.TXLOG_STATE'))
    exec ('create table DB.DBA.TXLOG_STATE (NAME varchar, primary key (NAME))');
  if (not exists (select 1 from DB.DBA.SYS_KEYS where KEY_TABLE = 'DB.DBA.TXLOG_TURN'))
    exec ('create table DB.DBA.TXLOG_TURN (ID integer, TAKEN integer, primary key (ID))');
  if (not exists (select 1 from DB.DBA.SYS_USERS where U_NAME = 'TXLOG'))
    {
      DB.DBA.USER_CREATE ('TXLOG', uuid (), vector ('DISABLED', 1));
      exec ('grant SPARQL_UPDATE to TXLOG');
    }
}
;

DB.DBA.TXLOG_INSTALL ()
;

-- A worker holds the log's data and nothing else: no query may meet what a Virtuoso brings along.
delete from DB.DBA.RDF_QUAD where G in (
  iri_to_id ('http://www.openlinksw.com/schemas/virtrdf#'),
  iri_to_id ('http://www.w3.org/ns/ldp#'),
  iri_to_id ('http://localuriqaserver/sparql'))
;

insert soft DB.DBA.TXLOG_TURN (ID, TAKEN) values (1, 0)
;

-- The graph that holds what is in no named graph.
create procedure DB.DBA.TXLOG_DEFAULT ()
{
  return 'urn:txlog:system:default';
}
;

-- No other request begins before this transaction is over.
create procedure DB.DBA.TXLOG_TAKE_TURN ()
{
  update DB.DBA.TXLOG_TURN set TAKEN = TAKEN + 1 where ID = 1;
  if (row_count () <> 1)
    signal ('TXL02', 'the row of TXLOG_TURN is missing; run virtuoso.sql again');
}
;

create procedure DB.DBA.TXLOG_OBJECT (in o any, inout ses any)
{
  if (isiri_id (o))
    {
      http ('<', ses); http (__id2i (o), ses); http ('>', ses);
      return;
    }
  o := __ro2sq (o);
  -- Virtuoso itself would give out six digits.
  if (__tag (o) = __tag of double precision)
    http (sprintf ('"%.17g"^^<http://www.w3.org/2001/XMLSchema#double>', o), ses);
  else if (__tag (o) = __tag of real)
    http (sprintf ('"%.9g"^^<http://www.w3.org/2001/XMLSchema#float>', o), ses);
  else
    http_nt_object (o, ses);
}
;

-- What a reader of Turtle calls. A literal that a Virtuoso would make another of comes with this before its datatype,
-- and is kept as it is written, under the datatype that it has.
create function DB.DBA.TXLOG_LITERAL (inout o_val any, inout o_type any, inout o_lang any) returns any
{
  if (not (isstring (o_type) or isuname (o_type)))
    return DB.DBA.RDF_MAKE_LONG_OF_TYPEDSQLVAL_STRINGS (
      o_val, null, case when (isstring (o_lang) or isuname (o_lang)) then o_lang else null end);
  if (starts_with (o_type, 'urn:txlog:kept:'))
    return rdf_box (o_val, DB.DBA.RDF_TWOBYTE_OF_DATATYPE (iri_to_id (subseq (o_type, 15))), 257, 0, 1);
  return DB.DBA.RDF_MAKE_LONG_OF_TYPEDSQLVAL_STRINGS (o_val, o_type, null);
}
;

create procedure DB.DBA.TXLOG_ON_GRAPH (inout g varchar, inout g_iid IRI_ID, inout app_env any)
{
  ;
}
;

create procedure DB.DBA.TXLOG_ON_BLANK (inout g_iid IRI_ID, inout app_env any, inout res IRI_ID)
{
  signal ('TXL04', 'a blank node');
}
;

create procedure DB.DBA.TXLOG_ON_IRI (inout uri varchar, inout g_iid IRI_ID, inout app_env any, inout res IRI_ID)
{
  res := iri_to_id (uri);
}
;

create procedure DB.DBA.TXLOG_ON_TRIPLE (
  inout g_iid IRI_ID, inout s_uri varchar, inout p_uri varchar, inout o_uri varchar, inout app_env any)
{
  dict_put (app_env, vector (iri_to_id (s_uri), iri_to_id (p_uri), iri_to_id (o_uri)), 0);
}
;

create procedure DB.DBA.TXLOG_ON_LITERAL (
  inout g_iid IRI_ID, inout s_uri varchar, inout p_uri varchar,
  inout o_val any, inout o_type varchar, inout o_lang varchar, inout app_env any)
{
  dict_put (app_env,
    vector (iri_to_id (s_uri), iri_to_id (p_uri), DB.DBA.TXLOG_LITERAL (o_val, o_type, o_lang)), 0);
}
;

create function DB.DBA.TXLOG_TRIPLES (in text varchar, in graph_iri varchar) returns any
{
  declare acc any;
  acc := dict_new (length (text) / 100);
  rdf_load_turtle (text, '', graph_iri, 0,
    vector ('DB.DBA.TXLOG_ON_GRAPH', 'DB.DBA.TXLOG_ON_BLANK', 'DB.DBA.TXLOG_ON_IRI', 'DB.DBA.TXLOG_ON_TRIPLE',
      'DB.DBA.TXLOG_ON_LITERAL', '', 'DB.DBA.TTLP_EV_REPORT_DEFAULT'),
    acc);
  return dict_list_keys (acc, 1);
}
;

create procedure DB.DBA.TXLOG_IS_VACANT ()
{
  if (exists (select 1 from DB.DBA.RDF_QUAD))
    return 0;
  return 1;
}
;

create procedure DB.DBA.TXLOG_ADD (in text varchar, in graph_iri varchar)
{
  declare triples any;
  triples := DB.DBA.TXLOG_TRIPLES (text, graph_iri);
  if (length (triples))
    DB.DBA.RDF_INSERT_TRIPLES (graph_iri, triples, null);
}
;

create procedure DB.DBA.TXLOG_TAKE (in text varchar, in graph_iri varchar)
{
  declare triples any;
  triples := DB.DBA.TXLOG_TRIPLES (text, graph_iri);
  if (length (triples))
    DB.DBA.RDF_DELETE_TRIPLES (graph_iri, triples, null);
}
;

create procedure DB.DBA.TXLOG_EXEC (in text varchar)
{
  declare st, msg, meta, answer any;
  st := '00000';
  exec (concat ('SPARQL ', text), st, msg, vector (), 10, meta, answer);
  if (st <> '00000')
    signal (st, msg);
}
;

create procedure DB.DBA.TXLOG_CLEAR (in which varchar, in graph_iri varchar)
{
  if (which = 'clear')
    delete from DB.DBA.RDF_QUAD where G = iri_to_id (graph_iri);
  else if (which = 'clear-named')
    delete from DB.DBA.RDF_QUAD where G <> iri_to_id (DB.DBA.TXLOG_DEFAULT ());
  else
    delete from DB.DBA.RDF_QUAD;
}
;

-- One part of a request, see workers/virtuoso.py.
create procedure DB.DBA.TXLOG_PART (in verb varchar, in about varchar, in text varchar)
{
  if (verb = 'add')
    DB.DBA.TXLOG_ADD (text, about);
  else if (verb = 'take')
    DB.DBA.TXLOG_TAKE (text, about);
  else if (verb = 'update')
    DB.DBA.TXLOG_EXEC (text);
  else if (verb = 'clear' or verb = 'clear-all' or verb = 'clear-named')
    DB.DBA.TXLOG_CLEAR (verb, about);
  else if (verb = 'copy')
    {
      declare there any;
      there := iri_to_id (text);
      insert soft DB.DBA.RDF_QUAD (G, S, P, O)
        select there, S, P, O from DB.DBA.RDF_QUAD where G = iri_to_id (about);
    }
  else if (verb = 'leave')
    {
      delete from DB.DBA.TXLOG_STATE where NAME = about;
      if (row_count () <> 1)
        signal ('TXL01', concat ('it is not at ', about));
    }
  else if (verb = 'enter')
    insert into DB.DBA.TXLOG_STATE (NAME) values (about);
  else if (verb = 'vacant')
    {
      if (exists (select 1 from DB.DBA.TXLOG_STATE) or not DB.DBA.TXLOG_IS_VACANT ())
        signal ('TXL01', 'it is not empty');
    }
  else if (verb = 'refuse')
    signal ('TXL06', text);
  else if (verb = 'fail')
    signal ('TXL03', 'asked to fail');
  else if (verb = 'forget')
    delete from DB.DBA.TXLOG_STATE;
  else
    signal ('TXL04', concat ('no such part: ', verb));
}
;

-- Ten digits: the length of the table; the table, a line for each part: verb, bytes, name; the parts' bytes.
create procedure DB.DBA.TXLOG_APPLY (inout body any)
{
  declare at, i, size integer;
  declare parts, part any;
  if (length (body) < 10)
    signal ('TXL04', 'the request is cut off');
  at := 10 + atoi (string_output_string (subseq (body, 0, 10)));
  if (at > length (body))
    signal ('TXL04', 'the request is cut off');
  parts := split_and_decode (string_output_string (subseq (body, 10, at)), 0, '\0\0\n');
  DB.DBA.TXLOG_TAKE_TURN ();
  for (i := 0; i < length (parts); i := i + 1)
    {
      part := split_and_decode (parts[i], 0, '\0\0 ');
      if (length (part) <> 3)
        signal ('TXL04', 'the table of parts is broken');
      size := atoi (part[1]);
      if (at + size > length (body))
        signal ('TXL04', 'the request is cut off');
      if (size)
        DB.DBA.TXLOG_PART (part[0], part[2], string_output_string (subseq (body, at, at + size)));
      else
        DB.DBA.TXLOG_PART (part[0], part[2], '');
      at := at + size;
    }
}
;

-- One graph as N-Triples, all as N-Quads, or all as SPARQL results, with what is ours as graphs alone.
create procedure DB.DBA.TXLOG_DUMP (in what varchar, in about varchar, inout ses any)
{
  declare wanted, kept any;
  kept := iri_to_id (DB.DBA.TXLOG_DEFAULT ());
  if (what = 'graph')
    {
      wanted := iri_to_id (about);
      for (select __id2i (S) as s, __id2i (P) as p, O as o from DB.DBA.RDF_QUAD where G = wanted) do
        {
          http ('<', ses); http (s, ses); http ('> <', ses); http (p, ses); http ('> ', ses);
          DB.DBA.TXLOG_OBJECT (o, ses);
          http (' .\n', ses);
        }
      return;
    }
  if (what = 'quads')
    {
      for (select G as gi, __id2i (G) as g, __id2i (S) as s, __id2i (P) as p, O as o from DB.DBA.RDF_QUAD) do
        {
          http ('<', ses); http (s, ses); http ('> <', ses); http (p, ses); http ('> ', ses);
          DB.DBA.TXLOG_OBJECT (o, ses);
          if (gi <> kept)
            {
              http (' <', ses); http (g, ses); http ('>', ses);
            }
          http (' .\n', ses);
        }
      return;
    }
  http ('?g\t?s\t?p\t?o\n', ses);
  for (select NAME as n from DB.DBA.TXLOG_STATE) do
    http (sprintf ('<%s>\t\t\t\n', n), ses);
  for (select G as gi, __id2i (G) as g, __id2i (S) as s, __id2i (P) as p, O as o from DB.DBA.RDF_QUAD) do
    {
      if (gi <> kept)
        {
          http ('<', ses); http (g, ses); http ('>', ses);
        }
      http ('\t<', ses); http (s, ses); http ('>\t<', ses); http (p, ses); http ('>\t', ses);
      DB.DBA.TXLOG_OBJECT (o, ses);
      http ('\n', ses);
    }
}
;

create procedure DB.DBA.TXLOG_SIZE (in about varchar)
{
  declare total, i integer;
  declare names any;
  if (about = '')
    return (select count (*) from DB.DBA.RDF_QUAD);
  total := 0;
  names := split_and_decode (about, 0, '\0\0 ');
  for (i := 0; i < length (names); i := i + 1)
    total := total + (select count (*) from DB.DBA.RDF_QUAD where G = iri_to_id (names[i]));
  return total;
}
;

create procedure DB.DBA.TXLOG_TELL (in what varchar, in about varchar, inout ses any)
{
  if (what = 'state')
    {
      for (select NAME as n from DB.DBA.TXLOG_STATE order by NAME) do
        http (concat (n, '\n'), ses);
    }
  else if (what = 'at')
    http (case when exists (select 1 from DB.DBA.TXLOG_STATE where NAME = about) then 'true' else 'false' end, ses);
  else if (what = 'vacant')
    http (case when DB.DBA.TXLOG_IS_VACANT () then 'true' else 'false' end, ses);
  else if (what = 'size')
    http (sprintf ('%d\n', DB.DBA.TXLOG_SIZE (about)), ses);
  else if (what = 'contexts')
    {
      for (select distinct G as gi from DB.DBA.RDF_QUAD where G <> iri_to_id (DB.DBA.TXLOG_DEFAULT ())) do
        http (concat (id_to_iri (gi), '\n'), ses);
    }
  else if (what = 'counts')
    {
      for (select NAME as n from DB.DBA.TXLOG_STATE) do
        http (concat (n, ' 0\n'), ses);
      for (select G as gi, count (*) as c from DB.DBA.RDF_QUAD group by G) do
        http (concat (id_to_iri (gi), sprintf (' %d\n', c)), ses);
    }
  else if (what = 'graph' or what = 'quads' or what = 'everything')
    DB.DBA.TXLOG_DUMP (what, about, ses);
  else if (what = 'version')
    http ('txlog 1\n', ses);
  else
    signal ('TXL05', concat ('there is nothing called ', what));
}
;

-- What was done gets into the data file, unless nothing was, or it did less than so many seconds ago. Called behind
-- requests and by the scheduler.
create procedure DB.DBA.TXLOG_SETTLE (in seconds integer)
{
  declare taken, since integer;
  declare settled any;
  taken := (select TAKEN from DB.DBA.TXLOG_TURN where ID = 1);
  since := datediff ('second', stringdate ('2020-01-01'), now ());
  settled := registry_get ('txlog_settled');
  if (isstring (settled))
    {
      settled := split_and_decode (settled, 0, '\0\0 ');
      if (atoi (settled[0]) = taken or atoi (settled[1]) > since - seconds)
        return;
    }
  registry_set ('txlog_settled', sprintf ('%d %d', taken, since));
  exec ('checkpoint');
}
;

create procedure DB.DBA.TXLOG_WORKER () __SOAP_HTTP 'text/plain'
{
  declare ses, words any;
  declare what, about, meth varchar;
  declare i, tries integer;
  set http_charset = 'utf-8';
  meth := http_request_get ('REQUEST_METHOD');
  -- Nothing is written to Virtuoso's transaction log: reading it at a start changes the order of what one transaction
  -- does to one row, and rows that were deleted come back. A killed server is at its last checkpoint, marker and data.
  log_enable (0, 1);
  -- What waits for its turn gets it while the one before it is still being committed; below this isolation it would
  -- then read rows as they were before that one, marker included.
  set isolation = 'serializable';
  declare exit handler for sqlstate '*'
    {
      rollback work;
      http_rewrite ();
      http_request_status (case __SQL_STATE
        when 'TXL01' then 'HTTP/1.1 409 Conflict'
        when 'TXL05' then 'HTTP/1.1 404 Not Found'
        when 'TXL04' then 'HTTP/1.1 400 Bad Request'
        when '40001' then 'HTTP/1.1 503 Service Unavailable'
        else 'HTTP/1.1 500 Internal Server Error' end);
      http (concat (__SQL_STATE, ' ', __SQL_MESSAGE, '\n'));
      return '';
    };
  words := split_and_decode (trim (http_path (), '/'), 0, '\0\0/');
  what := case when length (words) > 1 then words[1] else '' end;
  http_header (sprintf ('Content-Type: %s\r\n', case what
    when 'quads' then 'application/n-quads'
    when 'graph' then 'application/n-triples'
    when 'everything' then 'text/tab-separated-values; charset=UTF-8'
    else 'text/plain; charset=UTF-8' end));
  if (meth = 'POST' and what = 'settle')
    {
      DB.DBA.TXLOG_SETTLE (0);
      http ('done\n');
      return '';
    }
  if (meth = 'POST' and what = 'apply')
    {
      ses := http_body_read ();
      DB.DBA.TXLOG_APPLY (ses);
      commit work;
      DB.DBA.TXLOG_SETTLE (case when get_keyword ('name', http_param (), '') = 'settle' then 0 else 60 end);
      http ('done\n');
      return '';
    }
  ses := string_output ();
  if (what = 'counts' or what = 'quads' or what = 'graph' or what = 'everything')
    DB.DBA.TXLOG_TAKE_TURN ();
  about := get_keyword ('name', http_param (), '');
  DB.DBA.TXLOG_TELL (what, about, ses);
  rollback work;
  http (ses);
  return '';
}
;

grant execute on DB.DBA.TXLOG_WORKER to TXLOG
;

grant execute on DB.DBA.TXLOG_ON_GRAPH to TXLOG
;

grant execute on DB.DBA.TXLOG_ON_BLANK to TXLOG
;

grant execute on DB.DBA.TXLOG_ON_IRI to TXLOG
;

grant execute on DB.DBA.TXLOG_ON_TRIPLE to TXLOG
;

grant execute on DB.DBA.TXLOG_ON_LITERAL to TXLOG
;

DB.DBA.VHOST_REMOVE (lpath=>'/txlog')
;

DB.DBA.VHOST_DEFINE (lpath=>'/txlog', ppath=>'/SOAP/Http/TXLOG_WORKER', soap_user=>'TXLOG')
;

insert replacing DB.DBA.SYS_SCHEDULED_EVENT (SE_NAME, SE_START, SE_SQL, SE_INTERVAL)
  values ('txlog settles', now (), 'DB.DBA.TXLOG_SETTLE (0)', 1)
;

checkpoint
;
