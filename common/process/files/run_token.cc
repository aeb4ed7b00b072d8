#include "common/process/files/run_token.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <absl/strings/escaping.h>
#include <absl/strings/string_view.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/process/files/private_files.h"

namespace tandem {
namespace {

constexpr size_t kTokenBytes = 32, kTokenDigits = 2 * kTokenBytes;

bool IsToken(const std::string& text) {
  return text.size() == kTokenDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return std::isxdigit(static_cast<unsigned char>(c)) != 0;
         });
}

}  // namespace

std::string RunTokenPath(const std::string& run_dir) {
  return (std::filesystem::absolute(run_dir).lexically_normal() / "token").string();
}

absl::StatusOr<std::string> MakeSecret() {
  std::array<char, kTokenBytes> bytes{};
  // So few bytes come whole, and no signal interrupts them.
  if (getrandom(bytes.data(), bytes.size(), 0) != std::ssize(bytes)) {
    return Internal("getrandom: {}", std::strerror(errno));
  }
  return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
}

absl::Status MakeRunToken(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string secret, MakeSecret());
  return WritePrivateFile(path, secret + "\n");
}

absl::StatusOr<std::unique_ptr<RunToken>> RunToken::Make(const std::string& path) {
  TANDEM_RETURN_IF_ERROR(MakeRunToken(path));
  return std::unique_ptr<RunToken>(new RunToken(path));
}

RunToken::~RunToken() { unlink(path_.c_str()); }

absl::StatusOr<std::string> ReadRunToken(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(std::string text, ReadPrivateFile(path, kTokenDigits + 2));
  if (!text.empty() && text.back() == '\n') text.pop_back();
  if (IsToken(text)) return text;
  return FailedPrecondition("{} holds no token of a run: {} hexadecimal digits are expected", path,
                            kTokenDigits);
}

bool IsRunToken(const std::string& token, const std::string& given) {
  if (token.empty() || token.size() != given.size()) return false;
  volatile unsigned char different = 0;
  for (size_t i = 0; i < token.size(); ++i) {
    different = different | static_cast<unsigned char>(token[i] ^ given[i]);
  }
  return different == 0;
}

}  // namespace tandem
