// The runs below some folders, each under a name that an address can have.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace tandem {

// The folders that may be run directories below `runs_root`: runs_root/PROJECT/EXPERIMENT, or
// directly below it.
std::vector<std::filesystem::path> RunDirectories(const std::string& runs_root);

// Whether `dir` has what a run leaves first: its records or its blackbox.
bool IsRunDirectory(const std::filesystem::path& dir);

struct CatalogEntry {
  std::string id;       // of letters, digits, ".", "_" and "-"; no other run of the catalog has it
  std::string run_dir;  // absolute
};

// Looks anew at each call, so that a run that begins later is there. A name is the path from its
// root, "project.experiment", or the folder's own name where that is a root. Where there are
// several roots, or the path has other letters than A-Z, a-z, 0-9, "_" and "-", a mark of the whole
// path follows. So a run keeps its name whatever other runs begin or go. Thread-safe.
class RunCatalog {
 public:
  // Each of `roots` is a run directory, or a folder with run directories below it.
  explicit RunCatalog(std::vector<std::string> roots) : roots_(std::move(roots)) {}

  // In order of the roots, and of the folders below each.
  std::vector<CatalogEntry> List() const;
  // NotFound: no run has this name.
  absl::StatusOr<std::string> FindDirectory(const std::string& id) const;

 private:
  const std::vector<std::string> roots_;
};

}  // namespace tandem
