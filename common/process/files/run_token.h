// The run's token: who can read its file may call the run's services on loopback ports without TLS.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tandem {

// RUN_DIR/token, as an absolute path.
std::string RunTokenPath(const std::string& run_dir);

// 32 random bytes as 64 hexadecimal digits.
absl::StatusOr<std::string> MakeSecret();

// Writes a new token, a secret that this user alone can read. Errors as WritePrivateFile.
absl::Status MakeRunToken(const std::string& path);

// The token of a controller, which makes it before it listens. The file is removed when this is
// destroyed: a token of a run that is over opens nothing.
class RunToken {
 public:
  // Errors as MakeRunToken.
  static absl::StatusOr<std::unique_ptr<RunToken>> Make(const std::string& path);
  ~RunToken();
  RunToken(const RunToken&) = delete;
  RunToken& operator=(const RunToken&) = delete;

 private:
  explicit RunToken(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

// Errors as ReadPrivateFile; FailedPrecondition: not a token.
absl::StatusOr<std::string> ReadRunToken(const std::string& path);

// Takes equally long for every `given` of one length, so that its time does not tell how much of it
// is right.
bool IsRunToken(const std::string& token, const std::string& given);

}  // namespace tandem
