#include "common/tcp/certificate.h"

#include <ctime>
#include <memory>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr char kNoCertificate[] = "there is no PEM certificate in it";

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

Bio PemBio(const std::string& pem) {
  return {BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free};
}

// The next one in `text`, or null.
Certificate ReadCertificate(const Bio& text) {
  return {PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr), &X509_free};
}

std::string DateText(const ASN1_TIME* date) {
  const Bio text(BIO_new(BIO_s_mem()), &BIO_free);
  char line[64];
  if (ASN1_TIME_print(text.get(), date) != 1) return "an unreadable date";
  const int bytes = BIO_read(text.get(), line, sizeof(line));
  return bytes > 0 ? std::string(line, static_cast<size_t>(bytes)) : "an unreadable date";
}

absl::Status CheckDates(const Certificate& certificate, absl::Time now) {
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
  const Certificate certificate = ReadCertificate(PemBio(pem));
  if (certificate == nullptr) return InvalidArgument("{}", kNoCertificate);
  return CheckDates(certificate, now);
}

absl::Status CheckAuthorities(const std::string& pem, absl::Time now) {
  const Bio text = PemBio(pem);
  absl::Status result = InvalidArgument("{}", kNoCertificate);
  // While authorities are replaced, one may have expired.
  for (Certificate one = ReadCertificate(text); one != nullptr; one = ReadCertificate(text)) {
    result = CheckDates(one, now);
    if (result.ok()) break;
  }
  return result;
}

absl::Status CheckKey(const std::string& key, const std::string& certificate) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> parsed(
      PEM_read_bio_PrivateKey(PemBio(key).get(), nullptr, &NoPassphrase, nullptr), &EVP_PKEY_free);
  if (parsed == nullptr) {
    return InvalidArgument("there is no PEM private key in it that needs no passphrase");
  }
  const Certificate of = ReadCertificate(PemBio(certificate));
  if (of == nullptr) return InvalidArgument("{}", kNoCertificate);
  if (X509_check_private_key(of.get(), parsed.get()) != 1) {
    return InvalidArgument("it is not the key of the certificate");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> CertificateUris(const std::string& pem) {
  const Certificate certificate = ReadCertificate(PemBio(pem));
  if (certificate == nullptr) return InvalidArgument("{}", kNoCertificate);
  const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> names(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, nullptr, nullptr)),
      &GENERAL_NAMES_free);
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
