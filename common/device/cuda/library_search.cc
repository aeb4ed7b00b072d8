#include "common/device/cuda/library_search.h"

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <dlfcn.h>
#include <link.h>

#include "common/base/status.h"

namespace tandem {
namespace {

// Finds .../site-packages as the folder above torch/lib, from which libc10.so is loaded.
int KeepPackages(dl_phdr_info* info, size_t /*bytes*/, void* packages) {
  const std::filesystem::path path(info->dlpi_name);
  if (path.filename() != "libc10.so") return 0;
  *static_cast<std::string*>(packages) = path.parent_path().parent_path().parent_path().string();
  return 1;
}

}  // namespace

std::vector<std::string> LibraryFolders(const std::string& wheel) {
  std::vector<std::string> folders;
  if (const char* const named = std::getenv("TANDEM_CUDA_LIBS")) {
    std::istringstream list(named);
    for (std::string folder; std::getline(list, folder, ':');) {
      if (!folder.empty()) folders.push_back(folder);
    }
  }
  folders.emplace_back();
  std::string packages;
  dl_iterate_phdr(KeepPackages, &packages);
  if (!packages.empty() && !wheel.empty()) folders.push_back(packages + "/" + wheel);
  folders.emplace_back("/usr/local/cuda/lib64");
  return folders;
}

absl::StatusOr<void*> OpenLibrary(const std::string& name, const std::string& wheel) {
  std::string tried;
  for (const std::string& folder : LibraryFolders(wheel)) {
    const std::string path = folder.empty() ? name : folder + "/" + name;
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    // If a library exists but does not load, its own reason is more useful.
    const char* const reason = dlerror();
    const bool there = !folder.empty() && std::filesystem::exists(path);
    tried += (tried.empty() ? "" : ", ") + (folder.empty() ? "the loader's path" : folder);
    if (there && reason != nullptr) tried += std::string(" (") + reason + ")";
  }
  return FailedPrecondition("{} was not found: looked in {}; name its folder in TANDEM_CUDA_LIBS",
                            name, tried);
}

absl::StatusOr<void*> FindFunction(void* library, const std::string& name) {
  if (void* const function = dlsym(library, name.c_str())) return function;
  return FailedPrecondition("the library has no {}: it is older than this program needs", name);
}

}  // namespace tandem
