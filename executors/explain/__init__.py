"""Why: the causal story of a replica, a rank or a moment, told from a journal alone.

facts      one thing that happened or was decided, with what caused it
memory     what the telling of later facts needs to know of earlier ones
causes     the world's side: what events say
decisions  the core's side: what each kind of note says, and what it follows from
tracing    a journal, line by line, into facts
stories    the facts that answer a question, in the order of time
wording    rules, ranks and moments in words
"""
