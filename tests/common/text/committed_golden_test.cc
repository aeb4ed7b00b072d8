// The golden set that is committed with the tests, so that some always runs.
#include <catch2/catch.hpp>

#include "tests/common/text/chat_template_checks.h"
#include "tests/common/text/tokenizer_checks.h"
#include "tests/support/golden.h"

namespace tandem::testing {

TEST_CASE("Tokenizer gives the ids of the committed golden set", "[text]") {
  RunGoldenFamily(ReadGoldenFamily(CommittedGoldenDir(), "tokenizers"), TokenizerChecks());
}

TEST_CASE("ChatTemplate gives the texts of the committed golden set", "[text]") {
  RunGoldenFamily(ReadGoldenFamily(CommittedGoldenDir(), "chat_templates"), ChatTemplateChecks());
}

}  // namespace tandem::testing
