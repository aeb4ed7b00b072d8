// A saved batch on disk, all numbers little endian:
//
//   preamble, 64 bytes   magic, version, where the header lies, digests
//   arrays               of one sample after another, without gaps
//   header               JSON: the batch, and of every sample its numbers and where its arrays are
//
// The header comes last, so that a batch of any size is written in one pass. A reader that does not
// know an array or a key of the header leaves it out; what changes the meaning of anything raises
// kBatchVersion.
#pragma once

#include <array>
#include <cstdint>

namespace tandem {

inline constexpr char kBatchMagic[9] = "TNDBATCH";
inline constexpr uint32_t kBatchVersion = 1;
inline constexpr char kBatchSuffix[] = ".batch";

struct BatchPreamble {
  std::array<char, 8> magic{};
  uint32_t version = 0;
  uint32_t bytes = 64;         // of the preamble
  uint64_t header_offset = 0;  // from the start of the file
  uint64_t header_bytes = 0;
  uint64_t file_bytes = 0;
  uint64_t digest_low = 0;  // XXH3 of 128 bits of all that follows the preamble
  uint64_t digest_high = 0;
  uint64_t check = 0;  // XXH3 of 64 bits of the 56 bytes before
};
static_assert(sizeof(BatchPreamble) == 64);

// Arrays of every sample beside those of kSavedArrays (saved_batch.h), which are float32.
inline constexpr char kBatchTokens[] = "tokens";      // int32, prompt then response
inline constexpr char kBatchVersions[] = "versions";  // int64, per response token

}  // namespace tandem
