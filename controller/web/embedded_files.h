// What deploy/cmake/embed_files.py makes of controller/web/static and of dygraphs.
#pragma once

#include <string_view>
#include <vector>

namespace tandem {

struct EmbeddedFile {
  std::string_view name;    // "index.html"
  std::string_view digest;  // of its text, hexadecimal
  std::string_view gzip;    // compressed
};

const std::vector<EmbeddedFile>& EmbeddedFiles();

}  // namespace tandem
