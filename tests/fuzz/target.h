// A function that is fed hostile inputs. In a build of the preset `fuzz` it is the entry point of
// libFuzzer; in every other build it is listed, and corpus_test.cc feeds it the committed inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tandem::fuzz {

// Must return whatever the input is, and leave nothing behind. Ends the process where a promise is
// broken.
using Target = void (*)(std::string_view input);

// By name, which is also that of the folder of its inputs: tests/fuzz/corpus/NAME.
std::map<std::string, Target>& Targets();

struct Registration {
  Registration(const char* name, Target target) { Targets()[name] = target; }
};

}  // namespace tandem::fuzz

#ifdef TANDEM_FUZZING
#define TANDEM_FUZZ_TARGET(NAME)                                              \
  static void Fuzz_##NAME(std::string_view input);                            \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {   \
    Fuzz_##NAME(std::string_view(reinterpret_cast<const char*>(data), size)); \
    return 0;                                                                 \
  }                                                                           \
  static void Fuzz_##NAME(std::string_view input)
#else
#define TANDEM_FUZZ_TARGET(NAME)                                                     \
  static void Fuzz_##NAME(std::string_view input);                                   \
  static const ::tandem::fuzz::Registration registration_##NAME(#NAME, Fuzz_##NAME); \
  static void Fuzz_##NAME(std::string_view input)
#endif
