#include "controller/view/run_catalog.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <system_error>

#include <absl/strings/ascii.h>
#include <fmt/format.h>

#include "common/base/status.h"
#include "common/types/xxh3.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> ChildrenOf(const fs::path& folder) {
  std::vector<fs::path> children;
  std::error_code error;
  for (fs::directory_iterator child(folder, error), end; !error && child != end;
       child.increment(error)) {
    std::error_code unreadable;
    if (child->is_directory(unreadable)) children.push_back(child->path());
  }
  return children;
}

fs::path WholePath(const std::string& path) {
  std::error_code error;
  fs::path whole = fs::absolute(path, error).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

// A name that no other run has: of two folders whose names differ only in what an address cannot
// have, or that lie below different roots, each gets a mark of its path.
std::string NameOf(const fs::path& folder, const fs::path& root, bool is_only_root) {
  std::string name;
  bool is_plain = is_only_root;
  for (const fs::path& part :
       folder == root ? folder.filename() : folder.lexically_relative(root)) {
    if (!name.empty()) name += '.';
    for (const char c : part.string()) {
      const bool is_kept =
          absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
      is_plain = is_plain && is_kept;
      name += is_kept ? c : '_';
    }
  }
  if (is_plain) return name;
  const std::string path = folder.string();
  return fmt::format("{}-{:08x}", name,
                     static_cast<uint32_t>(HashXxh3(path.data(), path.size()).low));
}

}  // namespace

std::vector<fs::path> RunDirectories(const std::string& runs_root) {
  std::vector<fs::path> found;
  for (const fs::path& child : ChildrenOf(runs_root)) {
    found.push_back(child);
    for (const fs::path& grandchild : ChildrenOf(child)) found.push_back(grandchild);
  }
  return found;
}

bool IsRunDirectory(const fs::path& dir) {
  std::error_code error;
  return fs::is_regular_file(dir / "run.db", error) || fs::is_regular_file(dir / "blackbox", error);
}

std::vector<CatalogEntry> RunCatalog::List() const {
  std::vector<CatalogEntry> entries;
  std::set<std::string> listed;  // folders
  for (const std::string& root : roots_) {
    const fs::path whole_root = WholePath(root);
    std::vector<fs::path> candidates = RunDirectories(whole_root.string());
    candidates.push_back(whole_root);
    std::sort(candidates.begin(), candidates.end());
    for (const fs::path& folder : candidates) {
      if (!IsRunDirectory(folder) || !listed.insert(folder.string()).second) continue;
      entries.push_back({NameOf(folder, whole_root, roots_.size() == 1), folder.string()});
    }
  }
  return entries;
}

absl::StatusOr<std::string> RunCatalog::FindDirectory(const std::string& id) const {
  for (const CatalogEntry& entry : List()) {
    if (entry.id == id) return entry.run_dir;
  }
  return MakeStatus(absl::StatusCode::kNotFound, "there is no run {} below the folders shown", id);
}

}  // namespace tandem
