"""``spec.security``, ``spec.cors`` and ``spec.load`` of a manifest: who may connect to the masters, from which web
pages, and what masters may fetch."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from txlog.config.manifest_model import ManifestModel, cel_rules
from txlog.config.resource_specs import SecretRef
from txlog.config.units import Duration, Quantity, duration_within, size_within


class UsersSpec(ManifestModel):
    """Who may read, write and administer. `txlog user` edits the file of users."""

    secret_ref: SecretRef = Field(
        description="Secret with the file of users as `users`. On Kubernetes also `own-token`, the token of TxLog's "
        "own "
        "processes, the same in all data centres. `txlog up` reads `secrets/<name>/users` of its state folder."
    )


class SecuritySpec(ManifestModel):
    """Tokens, certificates and users. On Kubernetes the Secrets must exist; ``txlog up`` creates missing tokens and
    certificates."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            (
                "!has(self.tlsSecretRef) || has(self.peerTlsSecretRef)",
                "tlsSecretRef needs peerTlsSecretRef: without it, masters send the data of clients to each other in "
                "plain text",
            ),
            (
                "has(self.tlsSecretRef) == has(oldSelf.tlsSecretRef)"
                " && has(self.peerTlsSecretRef) == has(oldSelf.peerTlsSecretRef)",
                "tlsSecretRef and peerTlsSecretRef cannot come or go while masters run. Delete the resource in all data"
                " centres (volumes stay), then apply it again with the change",
            ),
            (
                "!has(oldSelf.users) || has(self.users)",
                "users cannot be taken away while masters run. Delete the resource (volumes stay), then apply it again"
                " without them",
            ),
        )
    )
    peer_token_secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with the `token` that masters show each other, the same in all data centres. By default "
        "`<metadata.name>-peer-token`. `txlog up` creates its own token.",
    )
    tls_secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with `tls.crt`, `tls.key` and `ca.crt`: clients connect with TLS. Needs "
        "`peerTlsSecretRef`.",
    )
    peer_tls_secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with `tls.crt`, `tls.key` and `ca.crt`. Masters authenticate each other by certificates "
        "whose "
        "DNS names are node ids. Set it in all data centres, or in none.",
    )
    users: UsersSpec | None = Field(
        default=None, description="Who may read, write and administer. Without it, no credentials are required."
    )


def _parse_network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise ValueError("a network such as 10.1.0.0/16") from None


SOURCE_PATTERN = r"^https?://[^/\s?#@]+(/[^\s#]*)$"
ORIGIN_PATTERN = r"^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?$|^https?://\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?$"
"""An origin as browsers send it: no path, and no wildcard."""


class CorsSpec(ManifestModel):
    """Web pages that may use the repository from a browser, such as SPARQL editors. By default there are none."""

    allowed_origins: list[Annotated[str, Field(pattern=ORIGIN_PATTERN)]] = Field(
        default=[],
        max_length=100,
        description="Origins as browsers send them, such as `https://yasgui.example.org`. Their pages may read and "
        "write with the credentials that they send. `*` is not possible: any page could then write.",
    )


class LoadSpec(ManifestModel):
    """What a SPARQL ``LOAD`` may fetch. One master fetches it once, and the quads become a transaction. Without it,
    ``LOAD`` is refused."""

    sources: list[Annotated[str, Field(pattern=SOURCE_PATTERN)]] = Field(
        min_length=1, max_length=100, description="Allowed URLs. One that ends in a slash allows everything below it."
    )
    networks: list[Annotated[str, AfterValidator(_parse_network)]] = Field(
        default=[],
        max_length=100,
        description="Networks that host names may resolve to, besides public addresses, such as `10.1.0.0/16`.",
    )
    max_size: Annotated[Quantity, AfterValidator(size_within("1Ki", "16Mi"))] = Field(
        default=16 << 20, description="The most bytes that one `LOAD` may fetch."
    )
    timeout: Annotated[Duration, AfterValidator(duration_within("1s", "10m"))] = Field(
        default=30_000, description="How long one `LOAD` may take."
    )
