// Token ids and texts against the golden vectors.
#include <map>
#include <memory>

#include <catch2/catch.hpp>

#include "common/text/tokenizer.h"
#include "tests/common/text/tokenizer_checks.h"
#include "tests/support/golden.h"

namespace tandem::testing {

TEST_CASE("Tokenizer gives the golden ids and texts", "[text][golden]") {
  RunGoldenFamily(ReadGoldenFamily(GoldenDirOrSkip(), "tokenizers"), TokenizerChecks());
}

}  // namespace tandem::testing
