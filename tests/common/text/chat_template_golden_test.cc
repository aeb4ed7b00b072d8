// Renderings against the golden vectors.
#include <catch2/catch.hpp>

#include "tests/common/text/chat_template_checks.h"
#include "tests/support/golden.h"

namespace tandem::testing {

TEST_CASE("ChatTemplate gives the golden texts and ids", "[text][golden]") {
  RunGoldenFamily(ReadGoldenFamily(GoldenDirOrSkip(), "chat_templates"), ChatTemplateChecks());
}

}  // namespace tandem::testing
