// Owners of OpenSSL's objects, and texts in its memory.
#pragma once

#include <memory>
#include <string>

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

namespace tandem {

template <auto Free>
struct FreedByOpenSsl {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

using OwnedBio = std::unique_ptr<BIO, FreedByOpenSsl<BIO_free>>;
using OwnedCertificate = std::unique_ptr<X509, FreedByOpenSsl<X509_free>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, FreedByOpenSsl<EVP_PKEY_free>>;
using OwnedExtension = std::unique_ptr<X509_EXTENSION, FreedByOpenSsl<X509_EXTENSION_free>>;
using OwnedName = std::unique_ptr<GENERAL_NAME, FreedByOpenSsl<GENERAL_NAME_free>>;
using OwnedNames = std::unique_ptr<GENERAL_NAMES, FreedByOpenSsl<GENERAL_NAMES_free>>;
using OwnedNumber = std::unique_ptr<BIGNUM, FreedByOpenSsl<BN_free>>;
using OwnedContext = std::unique_ptr<SSL_CTX, FreedByOpenSsl<SSL_CTX_free>>;
using OwnedSession = std::unique_ptr<SSL, FreedByOpenSsl<SSL_free>>;

// To read `text`, which outlives it.
inline OwnedBio BioOf(const std::string& text) {
  return OwnedBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// To write a text to.
inline OwnedBio EmptyBio() { return OwnedBio(BIO_new(BIO_s_mem())); }

// What was written to an EmptyBio.
inline std::string TextOf(const OwnedBio& bio) {
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &text);
  return {text, static_cast<size_t>(bytes)};
}

// The next certificate in a text of PEM, or null.
inline OwnedCertificate ReadCertificate(const OwnedBio& pem) {
  return OwnedCertificate(PEM_read_bio_X509(pem.get(), nullptr, nullptr, nullptr));
}

}  // namespace tandem
