"""vLLM integration harness: launches real vLLM servers and checks what their clients see."""
