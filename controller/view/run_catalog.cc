#include "controller/view/run_catalog.h"

#include <algorithm>
#include <set>
#include <system_error>

#include <absl/strings/ascii.h>
#include <fmt/format.h>

#include "common/base/status.h"

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

std::string NameOf(const fs::path& folder, const fs::path& root) {
  std::string name;
  for (const fs::path& part :
       folder == root ? folder.filename() : folder.lexically_relative(root)) {
    if (!name.empty()) name += '.';
    name += part.string();
  }
  for (char& c : name) {
    const bool is_plain = absl::ascii_isalnum(static_cast<unsigned char>(c));
    if (!is_plain && c != '.' && c != '_' && c != '-') c = '_';
  }
  // "." and ".." would be other addresses, and "" none.
  return name.find_first_not_of('.') == std::string::npos ? "run" + name : name;
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
  return fs::exists(dir / "run.db", error) || fs::exists(dir / "blackbox", error);
}

std::vector<CatalogEntry> RunCatalog::List() const {
  std::vector<CatalogEntry> entries;
  std::set<std::string> listed, taken;  // folders, names
  for (const std::string& root : roots_) {
    const fs::path whole_root = WholePath(root);
    std::vector<fs::path> candidates = RunDirectories(whole_root.string());
    candidates.push_back(whole_root);
    std::sort(candidates.begin(), candidates.end());
    for (const fs::path& folder : candidates) {
      if (!IsRunDirectory(folder) || !listed.insert(folder.string()).second) continue;
      const std::string name = NameOf(folder, whole_root);
      std::string id = name;
      for (int number = 2; !taken.insert(id).second; ++number) {
        id = fmt::format("{}.{}", name, number);
      }
      entries.push_back({std::move(id), folder.string()});
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
