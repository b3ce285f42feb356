"""Orchestration files as fuseraft's examples are built, in our own words: a team of each kind."""

from __future__ import annotations

DEV = """
Orchestration:
  Name: Numerals
  Models:
    fast: {ModelId: some-model, Endpoint: "https://api.example/v1", ApiKeyEnvVar: SOME_KEY}
  EvidenceStore: {Path: .fuseraft/state/evidence.json}
  ChangeTracking: {Path: .fuseraft/state/changes.json}
  Validation:
    BriefPath: plans/brief.json
    TestReportPath: plans/report.json
    TestAssertionPatterns: ["\\\\bassert\\\\b"]
  Contracts:
    - Name: Planned
      Requires: [{Type: FileExists, Path: plans/brief.json}]
    - Name: Built
      Requires:
        - {Type: FilesWritten, Source: plans/brief.json, Field: files_to_change}
        - {Type: CommandSucceeded, PatternField: verify_command, Pattern: "test|check"}
    - Name: Tested
      Requires:
        - {Type: FileExists, Path: plans/report.json}
        - {Type: TestReport, NoFailures: true, HasAssertions: true}
  FailureHandling: {NoProgress: {Action: Abort, Threshold: 3}}
  Verifier: {AgentName: Auditor, EveryNTurns: 5}
  Compaction: {TriggerTurnCount: 25, KeepRecentTurns: 10, Mode: lossless}
  ContextBudget: {WarnAt: 900, CutoverAt: 100000}
  Agents:
    - {Name: Planner, Isolation: Shared, Instructions: You plan., Model: {ModelId: fast},
       Plugins: [FileSystem, Scratchpad, Handoff]}
    - {Name: Developer, Isolation: Shared, Instructions: You write., Model: {ModelId: fast},
       FunctionChoice: required, MaxInTurnToolPairs: 12, Plugins: [FileSystem, Shell, Handoff]}
    - Name: Tester
      Model: {ModelId: fast}
      Plugins: [FileSystem, Shell, Handoff]
      Context:
        - {Source: session_context, MaxChars: 2000}
        - {Source: "changes_recent:5"}
        - {Source: "brief_field:verify_command", Label: How to test}
        - {Source: "file:plans/brief.json", MaxChars: 60}
        - {Source: "own_history:4"}
    - Name: Reviewer
      Isolation: Shared
      Model: {ModelId: fast}
      Plugins: [FileSystem, Handoff]
      ContextWindow: {TextOnly: true, ExcludeAgents: [Planner], MaxTurnAge: 6, MaxTailMessages: 5,
                      ContextCapFraction: 0.4, MaxReplayChars: 400}
    - {Name: Auditor, Model: {ModelId: fast}, Plugins: [Changes]}
  Selection:
    Type: statemachine
    StateMachine:
      Initial: Planning
      States:
        Planning: {Agent: Planner, Transitions: [
          {To: Building, Signal: HANDOFF TO DEVELOPER, Contract: Planned}]}
        Building: {Agent: Developer, Transitions: [
          {To: Testing, Signal: HANDOFF TO TESTER, Contract: Built,
           HandoffContext: [{Source: "changes_recent:2"}, {Source: session_context}]},
          {To: Planning, Signal: REPLAN REQUIRED}]}
        Testing: {Agent: Tester, Transitions: [
          {To: Review, Signal: HANDOFF TO REVIEWER, Contract: Tested, RecoveryAgent: Developer},
          {To: Building, Signal: BUGS FOUND, MaxRevisits: 2}]}
        Review: {Agent: Reviewer, Transitions: [
          {To: Done, Signal: APPROVED}, {To: Building, Signal: REVISION REQUIRED}]}
        Done: {Agent: Reviewer, Terminal: true}
  Termination:
    Type: composite
    MaxIterations: 40
    Strategies: [{Type: regex, Pattern: "(?m)^APPROVED$", AgentNames: [Reviewer]}]
  Checkpoint: {Mode: json, Path: .fuseraft/checkpoints}
  Events: {Path: .fuseraft/events.jsonl}
"""
"""A team of four with a state machine, contracts, every key of a context part, and an auditor."""

RESEARCH = """
Orchestration:
  Name: Research
  Contracts: [{Name: Found, Requires: [{Type: FileExists, Path: notes/raw.txt}]}]
  Compaction: {TriggerTurnCount: 20, KeepRecentTurns: 6, Mode: lossless}
  Agents:
    - {Name: Researcher, Isolation: Shared, Plugins: [Http, Json, FileSystem, Handoff]}
    - {Name: Writer, Isolation: Fresh, Plugins: [FileSystem, Handoff]}
  Selection:
    Type: statemachine
    StateMachine:
      Initial: Research
      States:
        Research: {Agent: Researcher, Transitions: [
          {To: Writing, Signal: HANDOFF TO WRITER, Contract: Found,
           HandoffContext: [{Source: "file:notes/raw.txt", Label: Findings, MaxChars: 100}]}]}
        Writing: {Agent: Writer, Transitions: [{To: Done, Signal: REPORT COMPLETE}]}
        Done: {Agent: Writer, Terminal: true}
  Termination: {Type: composite, MaxIterations: 15,
                Strategies: [{Type: regex, Pattern: REPORT COMPLETE, AgentNames: [Writer]}]}
"""
"""Two agents, the second of which hears nobody, with a hand-off that brings it what it needs."""

PIPELINE = """
Orchestration:
  Name: Pipeline
  Output: {Json: true}
  Selection: {Type: sequential}
  Termination:
    Type: composite
    Strategies: [{Type: regex, Pattern: PIPELINE_COMPLETE}, {Type: maxiterations, MaxIterations: 4}]
  Security: {FileSystemSandboxPath: ., ChangeEnvelope: ["output/**"]}
  Agents:
    - {Name: Extractor, Isolation: Shared, Plugins: [FileSystem], Capabilities: {FileSystem: [read]}}
    - {Name: Transformer, Isolation: Shared, Plugins: [FileSystem]}
"""
"""A line of two, each of which speaks once."""

BROWNFIELD = """
Orchestration:
  Brownfield: {EntryPoints: [src/main.go], SeedEnvelopeFromBrief: true}
  TestSelector: {FullSuiteCommand: echo all tests}
  Contracts:
    - Name: Built
      Requires: [{Type: FileExists, Path: a.txt}, {Type: RelatedTestsPass}]
  Agents:
    - {Name: Surveyor, KnowledgeWeight: High, Plugins: [SubAgent], SubAgentModel: scout,
       SubAgentMaxToolCalls: 30, SubAgentPlugins: [Search]}
    - {Name: Builder, Plugins: [FileSystem, Shell],
       ContextWindow: {TextOnly: true, MaxTurnAge: 5}}
  Selection:
    Type: statemachine
    StateMachine:
      Initial: Survey
      States:
        Survey: {Agent: Surveyor, Transitions: [{To: Build, Signal: RECON COMPLETE}]}
        Build: {Agent: Builder, Transitions: [{To: Done, Signal: BUILT, Contract: Built}]}
        Done: {Terminal: true}
"""
"""A survey first, tests that must have run, and sections that are not obeyed here."""

LLM = """
Orchestration:
  Selection: {Type: llm, Model: {ModelId: pick}, Prompt: "Of these agents:\\n{{$agents}}\\n{{$history}}\\nwho?"}
  Agents: [{Name: Writer, Description: Writes.}, {Name: Critic, Description: Judges.}]
  Termination: {Type: composite, MaxIterations: 6, Strategies: [{Type: regex, Pattern: TO THE END}]}
"""
"""A model that picks the next agent, until one says that it is done."""

ADVERSARIAL = """
Orchestration:
  Selection:
    Type: adversarial
    Adversarial:
      Rounds: 2
      Stages:
        - {Generator: Planner, Critic: PlanReviewer, Label: Planning}
        - {Generator: Developer, Critic: CodeReviewer, Label: Work}
  Agents:
    - {Name: Planner, Instructions: You plan., Context: [{Source: own_history}]}
    - {Name: PlanReviewer, Instructions: You judge plans.}
    - {Name: Developer, Instructions: You write., Isolation: Fresh}
    - {Name: CodeReviewer, Instructions: You judge code., Isolation: Shared}
"""
"""Two stages, in each of which one agent makes and another one judges."""

SCATTER = """
Orchestration:
  Selection:
    Type: scattergather
    ScatterGather: {Participants: [Law, Money, Money], Synthesizer: Lead, MaxConcurrency: 2}
  Agents: [{Name: Law, Isolation: Fresh}, {Name: Money}, {Name: Lead, Isolation: Fresh}]
  Termination: {Type: regex, Pattern: Cheap}
"""
"""Three answers to one task, and one that is made of them."""

MAPREDUCE = """
Orchestration:
  Selection:
    Type: mapreduce
    MapReduce: {Splitter: Splitter, Mapper: Mapper, Reducer: Reducer, ItemsJsonPath: work.files,
                MaxSplitterRetries: 2}
  Agents: [{Name: Splitter}, {Name: Mapper, Isolation: Fresh}, {Name: Reducer}]
"""
"""A list, an agent that works off its items, and one that sums up."""
