// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one main() of all tests. It does not return the number of failures as Catch2's own main does: 77 failures would
// be taken for a skip. 0 passed, 1 failed, 77 skipped.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include "support/first_error.hpp"
#include "support/skip.hpp"

namespace {

int cases_run = 0;

struct case_counter : Catch::TestEventListenerBase {
    using TestEventListenerBase::TestEventListenerBase;
    void testCaseEnded(const Catch::TestCaseStats&) override { ++cases_run; }
};
CATCH_REGISTER_LISTENER(case_counter)

struct fresh_start : Catch::TestEventListenerBase {
    using TestEventListenerBase::TestEventListenerBase;
    void sectionStarting(const Catch::SectionInfo& section) override { // the test case itself is one
        TestEventListenerBase::sectionStarting(section);               // keeps a stack of them
        collx_test::failure_of_a_rank.forget();
    }
};
CATCH_REGISTER_LISTENER(fresh_start)

} // namespace

int main(int argc, char** argv) {
    Catch::Session session;
    if (session.applyCommandLine(argc, argv) != 0) return 1;
    if (session.run() != 0) return 1;
    const bool listing = session.config().listTests() || session.config().listTags();
    if (cases_run == 0 && !listing && !session.config().showHelp()) {
        std::puts("no test case ran");
        return 1;
    }
    return cases_run > 0 && collx_test::skipped_cases() >= cases_run ? 77 : 0;
}
