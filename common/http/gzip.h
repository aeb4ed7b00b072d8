// Compression of an answer's body.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// In the format gzip (RFC 1952), without a time, so that equal texts give equal bytes. "": zlib
// found no memory.
std::string Gzip(std::string_view text);

}  // namespace tandem
