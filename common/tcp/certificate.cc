#include "common/tcp/certificate.h"

#include <ctime>

#include "common/base/status.h"
#include "common/tcp/openssl_objects.h"

namespace tandem {
namespace {

constexpr char kNoCertificate[] = "there is no PEM certificate in it";

std::string DateText(const ASN1_TIME* date) {
  const OwnedBio text = EmptyBio();
  return ASN1_TIME_print(text.get(), date) == 1 ? TextOf(text) : "an unreadable date";
}

absl::Status CheckDates(const OwnedCertificate& certificate, absl::Time now) {
  time_t at = absl::ToTimeT(now);
  time_t ahead = absl::ToTimeT(now + kClockSlack);
  const ASN1_TIME* const begin = X509_get0_notBefore(certificate.get());
  const ASN1_TIME* const end = X509_get0_notAfter(certificate.get());
  // X509_cmp_time returns -1 if the date is earlier than the given one or equal, 1 if later, 0 if
  // unreadable.
  if (X509_cmp_time(begin, &ahead) != -1) {
    return InvalidArgument("the certificate is not valid before {}", DateText(begin));
  }
  if (X509_cmp_time(end, &at) != 1) {
    return InvalidArgument("the certificate has expired on {}", DateText(end));
  }
  return absl::OkStatus();
}

// In place of a question at the terminal.
int NoPassphrase(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*data*/) { return -1; }

}  // namespace

absl::Status CheckCertificate(const std::string& pem, absl::Time now) {
  const OwnedCertificate certificate = ReadCertificate(BioOf(pem));
  if (certificate == nullptr) return InvalidArgument("{}", kNoCertificate);
  return CheckDates(certificate, now);
}

absl::Status CheckAuthorities(const std::string& pem, absl::Time now) {
  const OwnedBio text = BioOf(pem);
  absl::Status result = InvalidArgument("{}", kNoCertificate);
  // While authorities are replaced, one may have expired.
  for (OwnedCertificate one = ReadCertificate(text); one != nullptr; one = ReadCertificate(text)) {
    result = CheckDates(one, now);
    if (result.ok()) break;
  }
  return result;
}

absl::Status CheckKey(const std::string& key, const std::string& certificate) {
  const OwnedKey parsed(PEM_read_bio_PrivateKey(BioOf(key).get(), nullptr, &NoPassphrase, nullptr));
  if (parsed == nullptr) {
    return InvalidArgument("there is no PEM private key in it that needs no passphrase");
  }
  const OwnedCertificate of = ReadCertificate(BioOf(certificate));
  if (of == nullptr) return InvalidArgument("{}", kNoCertificate);
  if (X509_check_private_key(of.get(), parsed.get()) != 1) {
    return InvalidArgument("it is not the key of the certificate");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> CertificateUris(const std::string& pem) {
  const OwnedCertificate certificate = ReadCertificate(BioOf(pem));
  if (certificate == nullptr) return InvalidArgument("{}", kNoCertificate);
  const OwnedNames names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> uris;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  return uris;
}

}  // namespace tandem
