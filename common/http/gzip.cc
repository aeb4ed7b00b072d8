#include "common/http/gzip.h"

#include <zlib.h>

#include "common/base/check.h"

namespace tandem {

std::string Gzip(std::string_view text) {
  constexpr int kWindowAndGzip = 15 + 16;
  z_stream stream{};
  const int begun = deflateInit2(&stream, /*level=*/5, Z_DEFLATED, kWindowAndGzip, /*memLevel=*/8,
                                 Z_DEFAULT_STRATEGY);
  if (begun != Z_OK) return "";
  std::string compressed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  stream.avail_out = static_cast<uInt>(compressed.size());
  const int ended = deflate(&stream, Z_FINISH);
  TANDEM_CHECK(ended == Z_STREAM_END, "deflateBound promised that all of it fits");
  compressed.resize(stream.total_out);
  deflateEnd(&stream);
  return compressed;
}

}  // namespace tandem
