"""Certificates change while parties run, and certificates of an authority that openssl made, over real TLS."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import socket
import ssl
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from two_parties import job_with, make_two, running, settings_of, trained, write_tables
from veilboost.durable import is_exposed
from veilboost.errors import CertificateRevoked, ForeignCertificate, UnknownPeer, VeilBoostError, WrongPassphrase
from veilboost.party.certs import init_authority, issue, renew, revoke
from veilboost.party.hub import LinkHub, own_identity
from veilboost.party.identity import check_signed, describe, load_identity, sign
from veilboost.wire.rpc import Kind, Packet

OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="there is no openssl executable")


@pytest.fixture
def place(tmp_path):
    return make_two(tmp_path)


@pytest.fixture
def shop(place):
    with running(settings_of(place, "shop")) as daemon:
        yield daemon


def greeted(own, daemon):
    """The fingerprint that the shop proves; the link is closed."""
    link, peer = own.dial("shop", f"127.0.0.1:{daemon.port}", 5.0)
    link.close()
    return peer.fingerprint


def shown_by_tls(place, daemon):
    """The fingerprint of the certificate in the handshake."""
    context = ssl.create_default_context(cafile=place / "ca.crt")
    context.load_cert_chain(place / "bank.crt", place / "bank.key")
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", daemon.port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="shop.veilboost") as wrapped,
    ):
        return hashlib.sha256(wrapped.getpeercert(binary_form=True)).hexdigest()


# --- a new certificate while both parties run ------------------------------------------------------------------------


@pytest.mark.parametrize("new_key", [False, True])
def test_a_renewed_certificate_serves_new_links_and_open_links_go_on(place, shop, new_key):
    own = LinkHub(settings_of(place, "bank"))
    old = describe(place / "shop.crt").fingerprint
    link, peer = own.dial("shop", f"127.0.0.1:{shop.port}", 5.0)
    assert peer.fingerprint == old
    renew(place, "shop", new_key=new_key)
    renew(place, "bank", new_key=new_key)
    new = describe(place / "shop.crt").fingerprint
    assert new != old
    assert greeted(own, shop) == new
    assert shown_by_tls(place, shop) == new
    link.send(Packet(Kind.REQUEST, bytes(16), 1, b"nonsense"))
    assert link.receive().kind is Kind.FAILURE
    link.close()


def test_half_of_the_new_files_is_not_used(place, shop, caplog):
    own, old = LinkHub(settings_of(place, "bank")), describe(place / "shop.crt").fingerprint
    old_key = (place / "shop.key").read_bytes()
    renew(place, "shop", new_key=True)
    new_key = (place / "shop.key").read_bytes()
    with caplog.at_level(logging.WARNING):
        (place / "shop.key").write_bytes(old_key)  # the certificate arrived first
        assert greeted(own, shop) == old
    assert "VB-1604" in caplog.text
    (place / "shop.key").write_bytes(new_key)
    assert greeted(own, shop) == describe(place / "shop.crt").fingerprint


def test_two_pins_let_a_peer_change_its_certificate(place):
    old = describe(place / "bank.crt").fingerprint
    shutil.copy(place / "bank.crt", place / "old.crt")
    renew(place, "bank")
    new = describe(place / "bank.crt").fingerprint
    shutil.copy(place / "bank.crt", place / "new.crt")
    shutil.copy(place / "old.crt", place / "bank.crt")
    bank = settings_of(place, "bank")
    for pins, changed in (((old, new), None), ((old,), UnknownPeer)):
        with running(settings_of(place, "shop", pins)) as daemon:
            own = LinkHub(bank)
            greeted(own, daemon)
            os.replace(shutil.copy(place / "new.crt", place / "next.crt"), place / "bank.crt")
            if changed is None:
                greeted(own, daemon)
            else:
                with pytest.raises(VeilBoostError, match=changed.code):
                    greeted(own, daemon)
            os.replace(shutil.copy(place / "old.crt", place / "next.crt"), place / "bank.crt")


# --- renew ----------------------------------------------------------------------------------------------------------


def test_renew_keeps_hosts_and_the_key_and_the_old_certificate_stays_valid(tmp_path):
    init_authority(tmp_path)
    issue(tmp_path, "bank", ["bank.example", "10.0.0.7"], days=20)
    key, before = (tmp_path / "bank.key").read_bytes(), describe(tmp_path / "bank.crt")
    shutil.copy(tmp_path / "bank.crt", tmp_path / "before.crt")
    (tmp_path / "bank.key").unlink()  # the authority does not need it
    renew(tmp_path, "bank")
    after = describe(tmp_path / "bank.crt")
    assert (after.hosts, after.party) == (before.hosts, "bank")
    assert after.not_after - before.not_after > timedelta(days=300)
    for certificate in ("before.crt", "bank.crt"):
        (tmp_path / "kept.key").unlink(missing_ok=True)
        (tmp_path / "kept.key").touch(mode=0o600)
        (tmp_path / "kept.key").write_bytes(key)
        assert load_identity(tmp_path / certificate, tmp_path / "kept.key", tmp_path / "ca.crt").party == "bank"
    revoke(tmp_path, after.fingerprint)
    with pytest.raises(CertificateRevoked):
        renew(tmp_path, "bank")
    renew(tmp_path, "bank", new_key=True)
    assert load_identity(tmp_path / "bank.crt", tmp_path / "bank.key", tmp_path / "ca.crt").party == "bank"


# --- passphrases ----------------------------------------------------------------------------------------------------


def secret(file, text):
    file.touch(mode=0o600)
    file.write_text(text)
    return file


@pytest.mark.parametrize("place_of", ["setting", "variable", "credential"])
def test_a_key_with_a_passphrase(place, monkeypatch, place_of):
    file = secret(place / "bank.pass", "open sesame\n")
    issue(place, "bank", [], passphrase=b"open sesame", force=True)
    assert b"ENCRYPTED" in (place / "bank.key").read_bytes()
    own = settings_of(place, "bank")
    with pytest.raises(WrongPassphrase, match="no file with it is named"):
        own_identity(own)
    if place_of == "setting":
        own = settings_of(place, "bank", certificates='passphrase_file = "bank.pass"')
    elif place_of == "variable":
        monkeypatch.setenv("VEILBOOST_KEY_PASSPHRASE_FILE", str(file))
    else:
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(place))
        line = 'passphrase_file = "${CREDENTIALS_DIRECTORY}/bank.pass"'
        own = settings_of(place, "bank", certificates=line)
    found = own_identity(own)
    assert b"ENCRYPTED" not in found.key
    file.write_text("another\n")
    with pytest.raises(WrongPassphrase, match="does not fit"):
        own_identity(own)
    file.write_text("")
    with pytest.raises(WrongPassphrase, match="contains no passphrase"):
        own_identity(own)
    file.chmod(0o644)
    with pytest.raises(VeilBoostError, match="VB-1605"):
        own_identity(own)


def test_an_authority_whose_key_has_a_passphrase(tmp_path, monkeypatch):
    init_authority(tmp_path, passphrase=b"open sesame")
    with pytest.raises(WrongPassphrase):
        issue(tmp_path, "bank", [])
    monkeypatch.setenv("VEILBOOST_KEY_PASSPHRASE_FILE", str(secret(tmp_path / "pass", "open sesame")))
    assert describe(issue(tmp_path, "bank", [])).party == "bank"


@pytest.mark.parametrize(
    ("mode", "owner", "user", "exposed"),
    [(0o600, 7, 7, False), (0o640, 7, 7, True), (0o440, 0, 7, False), (0o444, 0, 7, True), (0o640, 0, 0, True)],
)
def test_the_group_may_read_a_credential_of_root(monkeypatch, mode, owner, user, exposed):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert is_exposed(mode, owner) == exposed


# --- an authority that openssl made ----------------------------------------------------------------------------------


def openssl(folder, *arguments, text=""):
    subprocess.run([OPENSSL, *arguments], cwd=folder, input=text, text=True, check=True, capture_output=True)


def sign_request(folder, name, issuer, extensions, days=30):
    (folder / f"{name}.ext").write_text(extensions)
    openssl(folder, "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
            f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")  # fmt: skip
    by = ["-signkey", f"{name}.key"] if issuer is None else ["-CA", f"{issuer}.crt", "-CAkey", f"{issuer}.key"]
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *by, "-set_serial", str(len(name)), "-days", str(days),
            "-extfile", f"{name}.ext", "-out", f"{name}.crt")  # fmt: skip


AUTHORITY = "basicConstraints=critical,CA:TRUE{}\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n"


def leaf(party):
    return (
        "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
        "extendedKeyUsage=serverAuth,clientAuth\n"
        f"subjectAltName=URI:veilboost:party:{party},DNS:{party}.veilboost\n"
    )


@pytest.fixture
def external(tmp_path):
    """A root, an intermediate authority, and a party's certificate followed by the intermediate one."""
    sign_request(tmp_path, "root", None, AUTHORITY.format(""))
    sign_request(tmp_path, "middle", "root", AUTHORITY.format(",pathlen:0"))
    for party in ("bank", "shop"):
        sign_request(tmp_path, party, "middle", leaf(party))
        with (tmp_path / f"{party}.crt").open("ab") as file:
            file.write((tmp_path / "middle.crt").read_bytes())
        (tmp_path / f"{party}.key").chmod(0o600)
    shutil.copy(tmp_path / "root.crt", tmp_path / "ca.crt")
    write_tables(tmp_path)
    return tmp_path


@needs_openssl
def test_a_job_with_certificates_of_an_intermediate_authority_of_openssl(external):
    with running(settings_of(external, "shop")) as daemon:
        trained(settings_of(external, "bank"), job_with(daemon))


@needs_openssl
def test_the_openssl_commands_of_the_page(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "certificates.md").read_text()
    text = "".join(
        re.findall(r"^```console\n(.*?)^```$", page.split("your own authority")[1], re.MULTILINE | re.DOTALL)
    )
    script = re.sub(r"^\$ ", "", text, flags=re.MULTILINE)
    subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, check=True, capture_output=True)
    assert load_identity(tmp_path / "bank.crt", tmp_path / "bank.key", tmp_path / "root.crt").party == "bank"


@needs_openssl
def test_what_an_intermediate_authority_may_not_do(external):
    own = load_identity(external / "bank.crt", external / "bank.key", external / "ca.crt")
    evidence = sign(own, "test", b"content")
    assert check_signed(evidence, "bank", "test", b"content", own.ca).party == "bank"
    without = replace(
        own, certificate=own.certificate.split(b"-----END CERTIFICATE-----\n")[0] + b"-----END CERTIFICATE-----\n"
    )
    with pytest.raises(ForeignCertificate):
        check_signed(sign(without, "test", b"content"), "bank", "test", b"content", own.ca)
    # A party signs for another one, an authority below one that may have none, and one with name constraints.
    cases = {
        "byparty": ("bank", leaf("bank")),
        "below": ("middle", AUTHORITY.format("")),
        "named": ("root", AUTHORITY.format("") + "nameConstraints=critical,permitted;DNS:.example\n"),
    }
    for name, (issuer, extensions) in cases.items():
        sign_request(external, name, issuer, extensions)
        last = name
        if name != "byparty":
            last = f"{name}s-party"
            sign_request(external, last, name, leaf("bank"))
        chain = b"".join(
            (external / f"{each}.crt").read_bytes() for each in dict.fromkeys((last, name, issuer, "middle"))
        )
        forged = replace(own, certificate=chain, key=(external / f"{last}.key").read_bytes())
        with pytest.raises(ForeignCertificate):
            check_signed(sign(forged, "test", b"content"), "bank", "test", b"content", own.ca)


# --- what TLS accepts -----------------------------------------------------------------------------------------------


@needs_openssl
@pytest.mark.parametrize(
    ("options", "cipher"),
    [
        (["-tls1_3"], "TLS_AES_"),
        (["-tls1_2"], "ECDHE-ECDSA-AES"),
        (["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"], "ECDHE-ECDSA-AES256-GCM-SHA384"),
        (["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], None),
        (["-tls1", "-cipher", "ALL:@SECLEVEL=0"], None),
        (["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"], None),  # CBC
        (["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-SHA384:@SECLEVEL=0"], None),
        (["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"], None),
        (["-tls1_2", "-cipher", "AES128-GCM-SHA256:AES256-SHA:@SECLEVEL=0"], None),  # no forward secrecy
        (["-tls1_2", "-cipher", "eNULL:aNULL:@SECLEVEL=0"], None),
    ],
)
def test_tls_versions_and_ciphers(place, shop, options, cipher):
    own = ["-cert", "bank.crt", "-key", "bank.key", "-CAfile", "ca.crt", "-servername", "shop.veilboost"]
    done = subprocess.run(
        [OPENSSL, "s_client", "-connect", f"127.0.0.1:{shop.port}", "-alpn", "h2", *own, *options],
        cwd=place, input="", text=True, errors="replace", capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    if cipher is None:
        assert "Cipher is (NONE)" in done.stdout, done.stdout
        assert re.search("alert|unexpected eof", done.stderr), done.stderr  # the server refused, not openssl itself
    else:
        assert f"Cipher is {cipher}" in done.stdout, done.stderr
        assert "Verify return code: 0 (ok)" in done.stdout
