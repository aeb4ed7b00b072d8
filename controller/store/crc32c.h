// CRC-32C (Castagnoli polynomial 0x1EDC6F41, RFC 3720 appendix B.4) and TFRecord's masked form.
#pragma once

#include <cstdint>
#include <string>

namespace tandem {

uint32_t Crc32c(const std::string& bytes);

// ((crc >> 15) | (crc << 17)) + 0xa282ead8: a checksum of data that holds checksums itself.
uint32_t MaskedCrc32c(const std::string& bytes);

}  // namespace tandem
