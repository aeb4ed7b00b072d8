#include "common/tcp/certificate_maker.h"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <optional>
#include <string_view>
#include <utility>

#include <openssl/ec.h>
#include <openssl/err.h>

#include "common/base/status.h"
#include "common/tcp/certificate.h"
#include "common/tcp/openssl_objects.h"

namespace tandem {
namespace {

constexpr int kSerialBits = 127;       // random, so that no two of an authority are equal
constexpr size_t kMostNameBytes = 64;  // of a common name or an organization, by X.520
constexpr long kVersion3 = 2;

// A call of libcrypto that fails without memory or randomness, or for a date that has no year.
// Who makes a certificate forgets first what earlier calls left there to be read.
absl::Status MakerFailed(const char* what) {
  char reason[256] = "no reason given";
  if (const unsigned long error = ERR_peek_last_error(); error != 0) {
    ERR_error_string_n(error, reason, sizeof(reason));
  }
  ERR_clear_error();
  return Internal("cannot make a certificate, {}: {}", what, reason);
}

bool IsHostOrNameByte(char byte) {
  return std::isalnum(static_cast<unsigned char>(byte)) != 0 || byte == '-' || byte == '.' ||
         byte == '_';
}

// May stand for all names one label below a domain: *.pods.cluster, but not *.cluster or all names.
bool IsHostName(std::string_view host) {
  constexpr size_t kMostBytes = 253;  // of a name in DNS
  if (host.size() > kMostBytes) return false;
  if (host.substr(0, 2) == "*.") {
    host.remove_prefix(2);
    const size_t dot = host.find('.');
    if (dot == 0 || dot == std::string_view::npos || dot + 1 == host.size()) return false;
  }
  return !host.empty() && std::all_of(host.begin(), host.end(), IsHostOrNameByte);
}

absl::Status CheckSubjectText(const char* what, const std::string& text) {
  if (!text.empty() && text.size() <= kMostNameBytes &&
      std::all_of(text.begin(), text.end(), IsHostOrNameByte)) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "the {} \"{}\" is no text of 1 to {} letters, digits, dots, hyphens and underscores", what,
      text, kMostNameBytes);
}

absl::StatusOr<OwnedCertificate> ParseMade(const std::string& pem) {
  OwnedCertificate parsed = ReadCertificate(BioOf(pem));
  if (parsed == nullptr) return InvalidArgument("there is no PEM certificate in it");
  return parsed;
}

absl::StatusOr<CertificatePem> ToPem(const OwnedCertificate& certificate, const OwnedKey& key) {
  const OwnedBio cert_text = EmptyBio(), key_text = EmptyBio();
  if (PEM_write_bio_X509(cert_text.get(), certificate.get()) != 1 ||
      PEM_write_bio_PKCS8PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr,
                                    nullptr) != 1) {
    return MakerFailed("as PEM");
  }
  return CertificatePem{.cert = TextOf(cert_text), .key = TextOf(key_text)};
}

absl::Status SetSerial(X509* certificate) {
  const OwnedNumber number(BN_new());
  if (number == nullptr ||
      BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) != 1 ||
      BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) == nullptr) {
    return MakerFailed("its serial number");
  }
  return absl::OkStatus();
}

// Version, serial number, dates and key.
absl::StatusOr<OwnedCertificate> StartCertificate(const OwnedKey& key, CertificateDates dates) {
  OwnedCertificate certificate(X509_new());
  if (certificate == nullptr) return MakerFailed("its start");
  TANDEM_RETURN_IF_ERROR(SetSerial(certificate.get()));
  X509* const made = certificate.get();
  if (X509_set_version(made, kVersion3) != 1 ||
      ASN1_TIME_set(X509_getm_notBefore(made), absl::ToTimeT(dates.begin)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(made), absl::ToTimeT(dates.end)) == nullptr ||
      X509_set_pubkey(made, key.get()) != 1) {
    return MakerFailed("its dates and key");
  }
  return certificate;
}

absl::Status AddToSubject(X509* certificate, const char* field, const std::string& text) {
  if (X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), field, MBSTRING_ASC,
                                 reinterpret_cast<const unsigned char*>(text.data()),
                                 static_cast<int>(text.size()), -1, 0) == 1) {
    return absl::OkStatus();
  }
  return MakerFailed("its subject");
}

// `value` as in OpenSSL's configuration; none of it comes from a user.
absl::Status AddExtension(X509* certificate, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const OwnedExtension extension(X509V3_EXT_nconf_nid(nullptr, &context, kind, value));
  if (extension == nullptr || X509_add_ext(certificate, extension.get(), -1) != 1) {
    return MakerFailed(OBJ_nid2sn(kind));
  }
  return absl::OkStatus();
}

// Names the issuer in `certificate` and signs it.
absl::Status SignBy(X509* issuer, EVP_PKEY* key, X509* certificate) {
  if (X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) != 1 ||
      X509_sign(certificate, key, EVP_sha256()) == 0) {
    return MakerFailed("its signature");
  }
  return absl::OkStatus();
}

OwnedName UriName(const std::string& uri) {
  OwnedName name(GENERAL_NAME_new());
  ASN1_IA5STRING* const text = ASN1_IA5STRING_new();
  if (name == nullptr || text == nullptr) return nullptr;
  ASN1_STRING_set(text, uri.data(), static_cast<int>(uri.size()));
  GENERAL_NAME_set0_value(name.get(), GEN_URI, text);
  return name;
}

// An address if `host` is one, else a name of DNS.
absl::StatusOr<OwnedName> HostName(const std::string& host) {
  OwnedName name(GENERAL_NAME_new());
  if (name == nullptr) return MakerFailed("its hosts");
  if (host == "0.0.0.0" || host == "::") {
    return InvalidArgument(
        "{} stands for all addresses of a host: name those by which others reach it", host);
  }
  if (ASN1_OCTET_STRING* const address = a2i_IPADDRESS(host.c_str()); address != nullptr) {
    GENERAL_NAME_set0_value(name.get(), GEN_IPADD, address);
    return name;
  }
  if (!IsHostName(host)) {
    return InvalidArgument("\"{}\" is not a host's name or address without brackets and port",
                           host);
  }
  ASN1_IA5STRING* const text = ASN1_IA5STRING_new();
  if (text == nullptr) return MakerFailed("its hosts");
  ASN1_STRING_set(text, host.data(), static_cast<int>(host.size()));
  GENERAL_NAME_set0_value(name.get(), GEN_DNS, text);
  return name;
}

absl::Status AddAlternativeNames(X509* certificate, const CertificateRequest& request) {
  const OwnedNames names(sk_GENERAL_NAME_new_null());
  const auto add = [&names](OwnedName name) {
    if (name == nullptr || sk_GENERAL_NAME_push(names.get(), name.get()) == 0) return false;
    (void)name.release();
    return true;
  };
  for (const std::string& uri : request.uris) {
    if (!add(UriName(uri))) return MakerFailed("its URIs");
  }
  for (const std::string& host : request.hosts) {
    TANDEM_ASSIGN_OR_RETURN(OwnedName name, HostName(host));
    if (!add(std::move(name))) return MakerFailed("its hosts");
  }
  if (request.uris.empty() && request.hosts.empty()) return absl::OkStatus();
  if (X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) !=
      1) {
    return MakerFailed("its alternative names");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CertificatePem> MakeAuthority(const std::string& project, CertificateDates dates) {
  TANDEM_RETURN_IF_ERROR(CheckSubjectText("project", project));
  ERR_clear_error();
  const OwnedKey key(EVP_EC_gen("P-256"));
  if (key == nullptr) return MakerFailed("its key");
  TANDEM_ASSIGN_OR_RETURN(const OwnedCertificate made, StartCertificate(key, dates));
  X509* const certificate = made.get();
  TANDEM_RETURN_IF_ERROR(AddToSubject(certificate, "O", project));
  // Two authorities of a project, as while one replaces the other, have different names.
  const absl::Time begin = dates.begin;
  TANDEM_RETURN_IF_ERROR(
      AddToSubject(certificate, "CN",
                   fmt::format("Tandem authority of {}",
                               absl::FormatTime("%Y-%m-%d %H:%M:%S", begin, absl::UTCTimeZone()))));
  TANDEM_RETURN_IF_ERROR(
      AddExtension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  TANDEM_RETURN_IF_ERROR(
      AddExtension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign"));
  TANDEM_RETURN_IF_ERROR(
      AddExtension(certificate, certificate, NID_subject_key_identifier, "hash"));
  TANDEM_RETURN_IF_ERROR(SignBy(certificate, key.get(), certificate));
  return ToPem(made, key);
}

namespace {

// The first one in its subject; nullopt: there is none that is a text.
std::optional<std::string> OrganizationOf(X509* certificate) {
  X509_NAME* const subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_organizationName, -1);
  if (at < 0) return std::nullopt;
  unsigned char* text = nullptr;
  const int bytes =
      ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  if (bytes < 0) return std::nullopt;
  std::string organization(reinterpret_cast<const char*>(text), static_cast<size_t>(bytes));
  OPENSSL_free(text);
  return organization;
}

}  // namespace

absl::StatusOr<std::string> AuthorityProject(const std::string& cert) {
  TANDEM_ASSIGN_OR_RETURN(const OwnedCertificate parsed, ParseMade(cert));
  const std::optional<std::string> project = OrganizationOf(parsed.get());
  if (!project) {
    return InvalidArgument(
        "its subject has no organization, which would be the project: make the authority with "
        "tandemctl certs init");
  }
  TANDEM_RETURN_IF_ERROR(
      Annotate(CheckSubjectText("project", *project), "the organization in its subject is none"));
  return *project;
}

absl::StatusOr<absl::Time> CertificateEnd(const std::string& cert) {
  TANDEM_ASSIGN_OR_RETURN(const OwnedCertificate parsed, ParseMade(cert));
  std::tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(parsed.get()), &end) != 1) {
    return InvalidArgument("its date of expiry cannot be read");
  }
  return absl::FromTM(end, absl::UTCTimeZone());
}

absl::StatusOr<CertificatePem> MakeCertificate(const CertificatePem& authority,
                                               const CertificateRequest& request) {
  TANDEM_RETURN_IF_ERROR(CheckSubjectText("name", request.name));
  TANDEM_RETURN_IF_ERROR(CheckKey(authority.key, authority.cert));
  TANDEM_ASSIGN_OR_RETURN(const OwnedCertificate issuer, ParseMade(authority.cert));
  ERR_clear_error();
  const OwnedKey issuer_key(
      PEM_read_bio_PrivateKey(BioOf(authority.key).get(), nullptr, nullptr, nullptr));
  const OwnedKey key(EVP_EC_gen("P-256"));
  if (issuer_key == nullptr || key == nullptr) return MakerFailed("its key");
  TANDEM_ASSIGN_OR_RETURN(const OwnedCertificate made, StartCertificate(key, request.dates));
  X509* const certificate = made.get();
  TANDEM_RETURN_IF_ERROR(AddToSubject(certificate, "CN", request.name));
  struct {
    int kind;
    const char* value;
  } const extensions[] = {{NID_basic_constraints, "critical,CA:FALSE"},
                          {NID_key_usage, "critical,digitalSignature"},
                          {NID_ext_key_usage, "serverAuth,clientAuth"},
                          {NID_subject_key_identifier, "hash"},
                          // An authority that others made may have no identifier of its key, and
                          // is then told by its issuer and serial number.
                          {NID_authority_key_identifier, "keyid,issuer"}};
  for (const auto& [kind, value] : extensions) {
    TANDEM_RETURN_IF_ERROR(AddExtension(certificate, issuer.get(), kind, value));
  }
  TANDEM_RETURN_IF_ERROR(AddAlternativeNames(certificate, request));
  TANDEM_RETURN_IF_ERROR(SignBy(issuer.get(), issuer_key.get(), certificate));
  return ToPem(made, key);
}

}  // namespace tandem
