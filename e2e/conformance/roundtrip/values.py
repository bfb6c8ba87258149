"""Odd literals, IRIs and labels: what people write and stores like to rewrite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyoxigraph as ox

XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_FORMS: Final = {
    "integer": "1 01 +1 -0 007 -042 123456789012345678 12345678901234567890123 abc 1.0 １",
    "int": "42 042 +7 2147483647",
    "long": "42 -9223372036854775808",
    "short": "42 042",
    "byte": "7 -128",
    "nonNegativeInteger": "5 05",
    "positiveInteger": "5",
    "negativeInteger": "-5",
    "unsignedInt": "42",
    "unsignedByte": "255 256",
    "decimal": "1.1 1.10 1.0 01.5 .5 5. 1 -0.0 +1.5 0.1234567890123456789 123456789012345678901234567890.5 1e0",
    "double": "1.0 1.0E0 1.0e0 1e0 1.0E20 1E400 -0 INF -INF +INF NaN 0.1 1.7976931348623157E308 4.9E-324 abc",
    "float": "1.0 1.0E0 1.1 INF NaN 16777217",
    "boolean": "true false 1 0 TRUE yes",
    "dateTime": (
        "1970-01-01T00:00:00Z 1970-01-01T00:00:00.000Z 2020-01-02T03:04:05+00:00 2020-01-02T03:04:05-00:00 "
        "2020-01-02T03:04:05+05:30 2020-01-02T03:04:05 2020-01-02T24:00:00Z 2020-01-02T03:04:05.120Z "
        "2020-01-02T03:04:05.123456789012Z -0044-03-15T00:00:00Z 12020-01-02T03:04:05Z 2020-02-30T00:00:00Z "
        "2020-01-02T03:04:60Z yesterday"
    ),
    "dateTimeStamp": "2020-01-02T03:04:05Z",
    "date": "2020-01-02 2020-01-02Z 2020-01-02+00:00 2020-01-02+14:00 2020-02-30 -0001-01-01",
    "time": "03:04:05 03:04:05Z 03:04:05.000 24:00:00 03:04:05+00:00 25:00:00",
    "gYear": "2020 2020Z -0044 20200",
    "gYearMonth": "2020-01 2020-13",
    "gMonthDay": "--02-29 --02-30",
    "gDay": "---31",
    "gMonth": "--12 --12Z",
    "duration": "P1D PT24H P1Y2M3DT4H5M6.7S P0M -P1D P12M P",
    "dayTimeDuration": "P1D PT24H PT0S PT1.50S",
    "yearMonthDuration": "P1Y P12M P14M",
    "anyURI": "http://example.org/a%20b http://example.org/ä",
    "hexBinary": "0fB7 0FB7 0fB",
    "base64Binary": "Zm9v Zm9v==",
    "QName": "xsd:int",
    "language": "en-US",
    "token": "a",
    "string": "typed",
    "NMTOKEN": "a-b",
}
_TAGS: Final = (
    *("en", "en-US", "de-CH-1996", "zh-Hant-TW", "sr-Latn-RS", "x-private", "i-klingon", "sl-rozaj-biske", "en-GB-oed"),
    *("en-a-bbb-x-a-ccc", "fr-FR", "ja-Jpan", "es-419", "abcdefgh", "mn-Cyrl-MN", "aa-bb"),
)
LANGUAGES: Final = {tag.lower(): tag for tag in _TAGS if tag != tag.lower()}
"""Tags with capitals, by their form in lower case."""
_TEXTS: Final = (
    *(
        "",
        " ",
        "  two  spaces ",
        "\t",
        "\n",
        "a\nb\n",
        "a\r\nb",
        "\rb",
        '"',
        '""',
        '"""',
        "'",
        "'''",
        "\\",
        "\\\\n",
        "\\u0041",
    ),
    *(
        'a"b',
        "a'b",
        "a\\",
        "tab\tin",
        "{}",
        "[]",
        "<urn:a>",
        "<b>&amp;</b>",
        "&#13;",
        "]]>",
        "<!-- -->",
        "a,b;c",
        "=1+1",
        "a|b",
    ),
    *(
        "ä",
        "a\u0308",
        "é",
        "e\u0301",
        "ß",
        "İ",
        "日本語",
        "العربية",
        "עברית",
        "\u200e\u200f",
        "\u00a0",
        "\u00ad",
        "\u2028\u2029",
    ),
    *(
        "😀",
        "👩\u200d👩\u200d👧",
        "\U0001d11e",
        "\U0010fffd",
        "\ufeffbom",
        "\ufffd",
        "\u0085",
        "\x7f",
        "\ue000",
        "０１",
        "%00",
        "a%20b",
    ),
    *("_:b0", "urn:txlog:bnode", "$x", "?x", "@en", "^^x", "# no comment", "SELECT * { ?s ?p ?o }", "x" * 5000),
)
_IRIS: Final = (
    *(
        "http://example.org/",
        "http://example.org",
        "HTTP://EXAMPLE.org/A",
        "http://example.org/%7Euser",
        "http://example.org/~user",
    ),
    *(
        "http://example.org/a/../b",
        "http://example.org/./c",
        "http://example.org:80/",
        "http://example.org/ä",
        "http://example.org/%C3%A4",
    ),
    *(
        "http://example.org/日本語",
        "http://example.org/a?b=c&d=e#f",
        "http://example.org/#",
        "http://example.org/?",
        "http://example.org//x",
    ),
    *(
        "http://example.org/'quote'",
        "http://example.org/a,b;c(d)",
        "http://example.org/*!$",
        "http://[::1]/",
        "http://user:pw@example.org/",
    ),
    *(
        "urn:a",
        "urn:uuid:F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6",
        "mailto:a@example.org",
        "tel:+1-201-555-0123",
        "a:b",
        "file:///etc/x",
    ),
    *(
        "http://example.org/😀",
        "http://example.org/a\u0308",
        "data:,x",
        "x-y+z.1:abc",
        "http://münchen.example/",
        "http://example.org/%2f",
    ),
)
_LABELS: Final = (
    *(
        "b0",
        "B0",
        "0",
        "a.b",
        "a-b",
        "a_b",
        "_x",
        "x-61",
        "hex-61",
        "genid-start-1-abc",
        "node1hq5fl8sax1",
        "é",
        "日本",
    ),
    *("txlog-x", "a" * 200, "a..b", "a·b", "0a", "t1-t2-t3"),
)
OTHER_DATATYPES: Final = (
    *("http://example.org/type", "http://www.w3.org/1999/02/22-rdf-syntax-ns#HTML", "urn:type:ä"),
    *("http://www.w3.org/1999/02/22-rdf-syntax-ns#XMLLiteral", "http://www.opengis.net/ont/geosparql#wktLiteral"),
    *(f"{XSD}unknown", f"{XSD}precisionDecimal"),
)


def _triple_terms() -> Iterator[ox.Triple]:
    subject, predicate = ox.NamedNode("urn:s"), ox.NamedNode("http://example.org/p")
    objects = (
        *(ox.Literal("plain"), ox.Literal('a "quoted" \\ )>> .\n<<( '), ox.Literal("text", language="en")),
        *(ox.Literal("01", datatype=ox.NamedNode(f"{XSD}integer")), ox.NamedNode("urn:o"), ox.Literal("")),
    )
    for value in objects:
        yield ox.Triple(subject, predicate, value)
        yield ox.Triple(subject, predicate, ox.Triple(subject, predicate, value))


def odd_terms() -> Iterator[ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple]:
    """Each once. XML's own limits apply to none of them: control characters are not among them."""
    for name, forms in _FORMS.items():
        for form in forms.split(" "):
            yield ox.Literal(form, datatype=ox.NamedNode(XSD + name))
    yield ox.Literal(" 1 ", datatype=ox.NamedNode(f"{XSD}integer"))
    yield ox.Literal("", datatype=ox.NamedNode(f"{XSD}integer"))
    yield ox.Literal("line\nline", datatype=ox.NamedNode(f"{XSD}token"))
    for datatype in OTHER_DATATYPES:
        yield ox.Literal("01", datatype=ox.NamedNode(datatype))
    for language in _TAGS:
        yield ox.Literal("text", language=language)
    for text in _TEXTS:
        yield ox.Literal(text)
    for iri in _IRIS:
        yield ox.NamedNode(iri)
    for label in _LABELS:
        yield ox.BlankNode(label)
    yield from _triple_terms()
