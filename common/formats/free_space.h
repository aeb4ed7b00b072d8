// Free disk space.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

// What the user of this process can still write to the file system of `folder`; nullopt: it cannot
// be asked.
std::optional<int64_t> FreeBytesIn(const std::string& folder);

}  // namespace tandem
