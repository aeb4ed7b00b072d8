#include "common/tcp/certificate_folder.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <absl/time/clock.h>
#include <catch2/catch.hpp>
#include <openssl/ec.h>

#include "common/base/status.h"
#include "common/tcp/certificate.h"
#include "common/tcp/certificate_maker.h"
#include "common/tcp/openssl_objects.h"
#include "tests/common/tcp/tcp_pair.h"
#include "tests/support/file_mode.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing::ModeOf;
using testing::Says;

std::string TextOfFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct CertificateFolder {
  testing::TempDir dir;
  std::string path = dir.path() / "certs";
  absl::Time now = absl::Now();

  absl::Status Init(int days = 365) const {
    return MakeAuthorityFolder({.dir = path, .project = "demo", .days = days}, now);
  }
  absl::StatusOr<IssuedCertificate> Issue(IssueOptions options) const {
    options.dir = path;
    return IssueCertificate(options, now);
  }
  absl::StatusOr<IssuedCertificate> Worker(const std::string& role, int rank) const {
    return Issue({.roles = {role}, .rank = rank, .hosts = {"127.0.0.1", "node7.cluster"}});
  }
};

// As a program might make it that gives keys no identifiers.
CertificatePem ForeignAuthority(const std::string& organization, absl::Time now) {
  const OwnedKey key(EVP_EC_gen("P-256"));
  const OwnedCertificate made(X509_new());
  X509* const certificate = made.get();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 77);
  ASN1_TIME_set(X509_getm_notBefore(certificate), absl::ToTimeT(now - absl::Hours(1)));
  ASN1_TIME_set(X509_getm_notAfter(certificate), absl::ToTimeT(now + absl::Hours(24 * 90)));
  X509_set_pubkey(certificate, key.get());
  X509_NAME* const subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "O", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(organization.data()),
                             static_cast<int>(organization.size()), -1, 0);
  X509_set_issuer_name(certificate, subject);
  const OwnedExtension constraints(
      X509V3_EXT_nconf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE"));
  X509_add_ext(certificate, constraints.get(), -1);
  REQUIRE(X509_sign(certificate, key.get(), EVP_sha256()) > 0);
  const OwnedBio cert_text = EmptyBio(), key_text = EmptyBio();
  PEM_write_bio_X509(cert_text.get(), certificate);
  PEM_write_bio_PKCS8PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return {.cert = TextOf(cert_text), .key = TextOf(key_text)};
}

// What a data connection uses of a certificate, with peers of `role`.
TcpSecurity SecurityOf(const IssuedCertificate& issued, const std::string& role) {
  return {issued.files.cert, issued.files.key, issued.files.ca, "demo", {role}};
}

}  // namespace

TEST_CASE("a folder of certificates holds an authority and what it signed, in private files") {
  const testing::UmaskOf open_to_all(0);
  const CertificateFolder folder;
  REQUIRE(folder.Init().ok());
  REQUIRE(ModeOf(folder.path) == 0700);
  const auto issued = folder.Worker("trainer", 1);
  INFO(issued.status());
  REQUIRE(issued.ok());
  REQUIRE(issued->files.cert == folder.path + "/trainer-1.pem");
  REQUIRE(issued->files.key == folder.path + "/trainer-1.key");
  REQUIRE(issued->files.ca == folder.path + "/ca.pem");
  REQUIRE(issued->files.cert == CertificateFilesOf(folder.path, "trainer", 1).cert);
  for (const char* name : {"ca.pem", "ca.key", "trainer-1.pem", "trainer-1.key"}) {
    REQUIRE(ModeOf(folder.path + "/" + name) == 0600);
  }
  const std::string pem = TextOfFile(issued->files.cert);
  const auto uris = CertificateUris(pem);
  REQUIRE(uris.ok());
  const auto identities = ParseIdentities(*uris);
  REQUIRE(identities.ok());
  REQUIRE(identities->size() == 1);
  REQUIRE(identities->front().Uri() == "spiffe://tandem/demo/trainer/1");
  REQUIRE(issued->identities.front().Uri() == identities->front().Uri());
  REQUIRE(CheckCertificate(pem, folder.now + absl::Hours(24 * 29)).ok());
  REQUIRE(Says(CheckCertificate(pem, folder.now + absl::Hours(24 * 31)), "has expired"));
  REQUIRE(CheckKey(TextOfFile(issued->files.key), pem).ok());
  REQUIRE(CheckAuthorities(TextOfFile(issued->files.ca), folder.now).ok());
}

TEST_CASE("processes with issued certificates connect, by each name of a host") {
  const CertificateFolder folder;
  REQUIRE(folder.Init().ok());
  const auto trainer =
      folder.Issue({.roles = {"trainer"}, .rank = 0, .hosts = {"localhost", "::1"}});
  const auto rollout = folder.Worker("rollout", 0);
  REQUIRE(trainer.ok());
  REQUIRE(rollout.ok());
  const auto listener = testing::ListenHere(SecurityOf(*rollout, "trainer"));
  const testing::TcpPair pair = testing::Meet(*listener, SecurityOf(*trainer, "rollout"));
  INFO(pair.dialled.status() << pair.accepted.status());
  REQUIRE(pair.accepted.ok());
  REQUIRE((*pair.accepted)->identities().front().Uri() == "spiffe://tandem/demo/trainer/0");
  // The other way round the address that was dialled is not in the certificate.
  const auto named = testing::ListenHere(SecurityOf(*trainer, "rollout"));
  REQUIRE(Says(testing::Meet(*named, SecurityOf(*rollout, "trainer")).dialled.status(),
               "IP address mismatch"));
}

TEST_CASE("a certificate may be of all hosts of a domain") {
  const CertificateFolder folder;
  REQUIRE(folder.Init().ok());
  const auto issued = folder.Issue({.roles = {"agent"}, .hosts = {"*.tandem.default.svc"}});
  INFO(issued.status());
  REQUIRE(issued.ok());
  const std::string pem = TextOfFile(issued->files.cert);
  const OwnedCertificate certificate = ReadCertificate(BioOf(pem));
  REQUIRE(certificate != nullptr);
  const auto is_of = [&](const std::string& host) {
    return X509_check_host(certificate.get(), host.data(), host.size(), 0, nullptr) == 1;
  };
  REQUIRE(is_of("workers-3.tandem.default.svc"));
  REQUIRE_FALSE(is_of("tandem.default.svc"));
  REQUIRE_FALSE(is_of("a.workers-3.tandem.default.svc"));
  REQUIRE_FALSE(is_of("workers-3.other.default.svc"));
}

TEST_CASE("every role gets a certificate, and one process may have several roles") {
  const CertificateFolder folder;
  REQUIRE(folder.Init().ok());
  for (const std::string_view role : AllRoles()) {
    const auto issued = folder.Issue({.roles = {std::string(role)}, .hosts = {"node7"}});
    INFO(role << ": " << issued.status());
    REQUIRE(issued.ok());
    REQUIRE(fs::exists(folder.path + "/" + std::string(role) + ".pem"));
  }
  const auto host = folder.Issue(
      {.roles = {"controller", "trainer", "rollout"}, .hosts = {"127.0.0.1"}, .name = "host"});
  REQUIRE(host.ok());
  const auto uris = CertificateUris(TextOfFile(folder.path + "/host.pem"));
  REQUIRE(uris->size() == 3);
  REQUIRE(uris->back() == "spiffe://tandem/demo/rollout");
  const absl::Status unnamed = folder.Issue({.roles = {"user", "operator"}}).status();
  REQUIRE(absl::IsInvalidArgument(unnamed));
  REQUIRE(Says(unnamed, "give --name"));
}

TEST_CASE("nothing is written over, and the message says what to do") {
  const CertificateFolder folder;
  REQUIRE(folder.Init().ok());
  const std::string authority = TextOfFile(folder.path + "/ca.pem");
  const absl::Status again = folder.Init();
  REQUIRE(absl::IsAlreadyExists(again));
  REQUIRE(Says(again, folder.path + "/ca.key exists already"));
  REQUIRE(Says(again, "another folder"));
  REQUIRE(TextOfFile(folder.path + "/ca.pem") == authority);
  REQUIRE(folder.Worker("rollout", 2).ok());
  fs::remove(folder.path + "/rollout-2.pem");
  const std::string key = TextOfFile(folder.path + "/rollout-2.key");
  const absl::Status taken = folder.Worker("rollout", 2).status();
  REQUIRE(absl::IsAlreadyExists(taken));
  REQUIRE(Says(taken, folder.path + "/rollout-2.key exists already"));
  REQUIRE(Says(taken, "another --name"));
  REQUIRE(TextOfFile(folder.path + "/rollout-2.key") == key);
  // Of the other file alone nothing is left either.
  std::ofstream(folder.path + "/user.pem") << "another's";
  const absl::Status half = folder.Issue({.roles = {"user"}}).status();
  REQUIRE(absl::IsAlreadyExists(half));
  REQUIRE(Says(half, folder.path + "/user.pem exists already"));
  REQUIRE(TextOfFile(folder.path + "/user.pem") == "another's");
  REQUIRE_FALSE(fs::exists(folder.path + "/user.key"));
}

TEST_CASE("a certificate of as many days as its authority counts as long as that") {
  CertificateFolder folder;
  REQUIRE(folder.Init(365).ok());
  const absl::Time begin = folder.now;
  folder.now = begin + absl::Hours(1);
  const auto whole = folder.Issue({.roles = {"user"}, .days = 365});
  INFO(whole.status());
  REQUIRE(whole.ok());
  REQUIRE(whole->end == CertificateEnd(TextOfFile(folder.path + "/ca.pem")).value());
  REQUIRE(CertificateEnd(TextOfFile(whole->files.cert)).value() == whole->end);
  const auto less = folder.Issue({.roles = {"user"}, .name = "less", .days = 364});
  REQUIRE(less.ok());
  REQUIRE(less->end < whole->end);
  folder.now = begin + absl::Hours(25);
  REQUIRE(Says(folder.Issue({.roles = {"user"}, .name = "late", .days = 365}).status(),
               "expires in 364 days"));
  REQUIRE(folder.Issue({.roles = {"user"}, .name = "late", .days = 364}).ok());
}

TEST_CASE("an authority's folder keeps its readers and loses its writers") {
  const CertificateFolder folder;
  fs::create_directory(folder.path);
  fs::permissions(folder.path, fs::perms(0777));
  REQUIRE(folder.Init().ok());
  REQUIRE(ModeOf(folder.path) == 0755);
  // As /tmp, where nobody replaces what is another's.
  const std::string shared = folder.dir.path() / "shared";
  fs::create_directory(shared);
  fs::permissions(shared, fs::perms(01777));
  REQUIRE(MakeAuthorityFolder({.dir = shared, .project = "demo"}, folder.now).ok());
  REQUIRE((ModeOf(shared) & 07777) == 01777);
}

TEST_CASE("a certificate that would be of no use is refused with what to give") {
  const CertificateFolder folder;
  const absl::Status no_authority = folder.Worker("trainer", 0).status();
  REQUIRE(absl::IsNotFound(no_authority));
  REQUIRE(Says(no_authority, "tandemctl certs init " + folder.path));
  REQUIRE(folder.Init(10).ok());
  const auto refused = [&](IssueOptions options, const std::string& why) {
    if (options.days == 30) options.days = 5;
    const absl::Status status = folder.Issue(std::move(options)).status();
    INFO(status);
    REQUIRE(absl::IsInvalidArgument(status));
    REQUIRE(Says(status, why));
  };
  refused({.roles = {"chief"}}, "give one of controller, trainer, rollout, agent, user, operator");
  refused({.roles = {"user"}, .rank = 1}, "a user has no rank");
  refused({.roles = {"trainer"}, .rank = 4096, .hosts = {"a"}}, "give 0 to 4095");
  refused({.roles = {"trainer"}, .rank = 0}, "give --host");
  refused({.roles = {"trainer"}, .hosts = {"10.0.0.1:77"}}, "without brackets and port");
  refused({.roles = {"trainer"}, .hosts = {"0.0.0.0"}}, "all addresses");
  for (const char* host : {"", "*", "*.", "*.cluster", "*..cluster", "*.cluster.",
                           "a*.pods.cluster", "*.*.pods.cluster", "pods.*.cluster"}) {
    refused({.roles = {"trainer"}, .hosts = {host}}, "is not a host's name");
  }
  refused({.roles = {"user"}, .name = "ca"}, "that of the authority");
  refused({.roles = {"user"}, .name = "../user"}, "letters, digits");
  refused({.roles = {"user"}, .days = 11}, "expires in 10 days");
  refused({.roles = {"user"}, .days = 4000}, "give 1 to 3650");
  const absl::Status project =
      MakeAuthorityFolder({.dir = folder.path + "/two", .project = "a/b"}, folder.now);
  REQUIRE(absl::IsInvalidArgument(project));
  REQUIRE_FALSE(fs::exists(folder.path + "/two"));
  // A key that others have read may sign no more.
  fs::permissions(folder.path + "/ca.key", fs::perms(0644));
  const absl::Status open = folder.Issue({.roles = {"user"}, .days = 5}).status();
  REQUIRE(absl::IsFailedPrecondition(open));
  REQUIRE(Says(open, "ca.key"));
}

TEST_CASE("an authority that others made signs nothing without a project") {
  const testing::TempDir dir;
  REQUIRE(absl::IsInvalidArgument(AuthorityProject("no certificate").status()));
  const absl::Time now = absl::Now();
  const auto authority = MakeAuthority("demo", {now, now + absl::Hours(1)});
  REQUIRE(authority.ok());
  REQUIRE(AuthorityProject(authority->cert).value() == "demo");
  const auto leaf = MakeCertificate(*authority, {.name = "leaf", .dates = {now, now}});
  REQUIRE(leaf.ok());
  REQUIRE(Says(AuthorityProject(leaf->cert).status(), "tandemctl certs init"));
  // Of another authority.
  const auto other = MakeAuthority("demo", {now, now + absl::Hours(1)});
  REQUIRE(Says(MakeCertificate({authority->cert, other->key}, {.name = "leaf"}).status(),
               "not the key of the certificate"));
}

TEST_CASE("an authority of another program signs, if its organization may be a project's name") {
  const CertificateFolder folder;
  fs::create_directory(folder.path);
  const auto put = [&](const std::string& organization) {
    const CertificatePem pem = ForeignAuthority(organization, folder.now);
    std::ofstream(folder.path + "/ca.pem") << pem.cert;
    std::ofstream(folder.path + "/ca.key") << pem.key;
    fs::permissions(folder.path + "/ca.key", fs::perms(0600));
  };
  put("demo");
  const auto trainer = folder.Worker("trainer", 0), rollout = folder.Worker("rollout", 0);
  INFO(trainer.status());
  REQUIRE(trainer.ok());
  REQUIRE(rollout.ok());
  const auto listener = testing::ListenHere(SecurityOf(*rollout, "trainer"));
  const testing::TcpPair pair = testing::Meet(*listener, SecurityOf(*trainer, "rollout"));
  INFO(pair.dialled.status() << pair.accepted.status());
  REQUIRE(pair.accepted.ok());
  for (const std::string& organization :
       {std::string("Some Company, Inc."), std::string("a/trainer"), std::string("demo\0x", 6)}) {
    put(organization);
    const absl::Status refused = folder.Issue({.roles = {"user"}}).status();
    INFO(refused);
    REQUIRE(absl::IsInvalidArgument(refused));
    REQUIRE(Says(refused, "letters, digits, dots, hyphens and underscores"));
  }
}

TEST_CASE("why a certificate cannot be made is not what an earlier call left") {
  const absl::Time now = absl::Now();
  const auto beyond = [&] {
    // A key that cannot be read leaves its reason in the thread's list of errors.
    REQUIRE(absl::IsInvalidArgument(CheckKey("no key", "no certificate")));
    return CertificateDates{now, absl::InfiniteFuture()};
  };
  const absl::Status authority = MakeAuthority("demo", beyond()).status();
  INFO(authority);
  REQUIRE(absl::IsInternal(authority));
  REQUIRE(Says(authority, "its dates and key"));
  REQUIRE_FALSE(Says(authority, "no start line"));
  const auto good = MakeAuthority("demo", {now, now + absl::Hours(1)});
  const CertificateDates dates = beyond();
  const absl::Status leaf = MakeCertificate(*good, {.name = "leaf", .dates = dates}).status();
  INFO(leaf);
  REQUIRE(absl::IsInternal(leaf));
  REQUIRE_FALSE(Says(leaf, "no start line"));
}

}  // namespace tandem
