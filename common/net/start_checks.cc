#include "common/net/start_checks.h"

#include <filesystem>

#include "common/base/status.h"
#include "common/net/security/tls_credentials.h"
#include "common/process/files/private_files.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

fs::path WholePath(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();  // "a/b/" names a/b
}

bool IsWithin(const fs::path& path, const fs::path& folder) {
  const fs::path below = path.lexically_relative(folder);
  return !below.empty() && *below.begin() != "..";
}

absl::Status CheckSocket(const StartPlace& place) {
  if (place.listen.rfind("unix:", 0) != 0) return absl::OkStatus();
  const fs::path folder = WholePath(place.listen.substr(5)).parent_path();
  std::error_code unknown;
  if (fs::is_directory(folder, unknown)) {
    return Annotate(CheckSocketFolder(folder.string()), "cluster.listen=" + place.listen);
  }
  // What is missing in the run directory, and that itself, is made for the run.
  if (IsWithin(folder, WholePath(place.run_dir))) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kNotFound,
                    "cluster.listen={}: the folder {} does not exist, and outside of "
                    "cluster.run_dir a run makes no folders: make it (mkdir -m 700 {}), or leave "
                    "the key out for a socket in the run directory",
                    place.listen, folder.string(), folder.string());
}

}  // namespace

absl::Status CheckStartPlace(const StartPlace& place, Clock& clock) {
  TANDEM_RETURN_IF_ERROR(Annotate(CheckPrivateFolder(place.run_dir), "cluster.run_dir"));
  TANDEM_RETURN_IF_ERROR(CheckSocket(place));
  return CheckTlsFiles(place.security, clock);
}

}  // namespace tandem
