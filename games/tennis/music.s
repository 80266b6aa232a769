; Music: four voices, each a list of notes. A byte below REST is a note, from the C two octaves below the middle one up in
; half tones; LENGTH + n sets how many frames the notes from here on last; AGAIN starts the voice anew, and STOP ends it.

REST   = $40
LENGTH = $80
AGAIN  = $FE
STOP   = $FF

VOICES = 4                  ; lead, second, bass, drums

MUSIC_TITLE = 0
MUSIC_WON   = VOICES * 2

.segment "CODE"

; Starts the tune at A in the table.
.proc music_start
    sta tune
    ldx #VOICES - 1
:   jsr voice_start
    dex
    bpl :-
    rts
.endproc

; Lets voice X begin the tune. Keeps X.
.proc voice_start
    txa
    asl
    adc tune
    tay
    lda tunes, y
    sta voice_lo, x
    lda tunes+1, y
    sta voice_hi, x
    lda #1
    sta voice_t, x
    lda #REST
    sta voice_note, x
    rts
.endproc

.proc music_stop
    ldx #VOICES - 1
    lda #0
:   sta voice_t, x
    dex
    bpl :-
    lda #$30
    sta PULSE1
    sta PULSE2
    sta NOISE
    lda #$80
    sta TRIANGLE
    rts
.endproc

.proc music_frame
    ldx #VOICES - 1
@voice:
    lda voice_t, x
    beq @next               ; it is over
    inc voice_age, x
    dec voice_t, x
    bne @sound
    jsr voice_read
@sound:
    jsr voice_sound
@next:
    dex
    bpl @voice
    rts
.endproc

; Reads the next note of voice X.
.proc voice_read
    lda voice_lo, x
    sta ptr
    lda voice_hi, x
    sta ptr+1
    ldy #0
@again:
    lda (ptr), y
    cmp #STOP
    beq @stop
    cmp #AGAIN
    beq @loop
    iny
    cmp #LENGTH
    bcc @note
    and #$7F
    sta voice_length, x
    bne @again              ; always
@note:
    sta voice_note, x
    lda voice_length, x
    sta voice_t, x
    lda #0
    sta voice_age, x
    tya
    clc
    adc ptr
    sta voice_lo, x
    lda ptr+1
    adc #0
    sta voice_hi, x
    rts
@loop:
    jsr voice_start
    jmp voice_read
@stop:
    lda #0
    sta voice_t, x
    lda #REST
    sta voice_note, x
    rts
.endproc

; Lets voice X sound: the loudness in each frame, and the pitch in the first.
.proc voice_sound
    ldy voice_age, x
    cpy #15
    bcc :+
    ldy #15
:   lda voice_note, x
    cpx #2
    beq @bass
    bcs @drums
    cpx #1
    beq @second
    cmp #REST
    beq @silent1
    lda loud_lead, y
    sta PULSE1
    cpy #0
    bne @done
    jsr pitch
    sta PULSE1+3
    lda num
    sta PULSE1+2
@done:
    rts
@silent1:
    lda #$30
    sta PULSE1
    rts
@second:
    ldy pulse_t
    bne @done               ; a sound goes first
    cmp #REST
    beq @silent2
    ldy voice_age, x
    cpy #8
    bcc :+
    ldy #7
:   lda loud_second, y
    sta PULSE2
    jsr pitch               ; a sound may have changed it: set it in every frame
    sta num+1
    lda num
    sta PULSE2+2
    lda num+1
    cmp pulse_high
    beq @done
    sta pulse_high
    sta PULSE2+3
    rts
@silent2:
    lda #$30
    sta PULSE2
    rts
@bass:
    cmp #REST
    beq @silent3
    lda voice_t, x
    cmp #3
    bcc @silent3            ; a little gap between the notes
    lda #$FF
    sta TRIANGLE
    cpy #0
    bne @done
    jsr pitch
    sta TRIANGLE+3
    lda num
    sta TRIANGLE+2
    rts
@silent3:
    lda #$80
    sta TRIANGLE
    rts
@drums:
    ldy noise_t
    bne @done
    cmp #REST
    beq @silent4
    tay
    lda drum_loud, y
    sec
    sbc voice_age, x
    bcs :+
    lda #0
:   ora #$30
    sta NOISE
    lda drum_period, y
    sta NOISE+2
    rts
@silent4:
    lda #$30
    sta NOISE
    rts
.endproc

; The period of voice X's note: low byte in num, high byte in A.
.proc pitch
    lda voice_note, x
    asl
    tay
    lda periods, y
    sta num
    lda periods+1, y
    rts
.endproc

.segment "BSS"
tune:         .res 1
voice_lo:     .res VOICES
voice_hi:     .res VOICES
voice_t:      .res VOICES   ; frames left of the note; 0: the voice is over
voice_age:    .res VOICES
voice_length: .res VOICES
voice_note:   .res VOICES

.segment "RODATA"

loud_lead:
    .byte $7A, $7A, $79, $79, $78, $78, $77, $77, $76, $76, $75, $75, $74, $74, $73, $73
loud_second:
    .byte $35, $35, $34, $34, $33, $33, $32, $32
drum_loud:
    .byte 6, 3, 5
drum_period:
    .byte 13, 2, 6

periods:
    .word $6AD, $64D, $5F3, $59D, $54C, $500, $4B8, $474, $434, $3F8, $3BF, $389
    .word $356, $326, $2F9, $2CE, $2A6, $280, $25C, $23A, $21A, $1FB, $1DF, $1C4
    .word $1AB, $193, $17C, $167, $152, $13F, $12D, $11C, $10C, $0FD, $0EF, $0E1
    .word $0D5, $0C9, $0BD, $0B3, $0A9, $09F, $096, $08E, $086, $07E, $077, $070
    .word $06A, $064, $05E, $059, $054, $04F, $04B, $046, $042, $03F, $03B, $038

; A note in the lists below: its half tone in the octave, and the octave.
nC = 0
nD = 2
nE = 4
nF = 5
nFs = 6
nG = 7
nGs = 8
nA = 9
nB = 11

.define n(tone, octave) (tone + (octave - 2) * 12)

; Drums.
KICK  = 0
HAT   = 1
SNARE = 2

; Eight frames are an eighth.
E1 = LENGTH + 8
E2 = LENGTH + 16
E3 = LENGTH + 24
E4 = LENGTH + 32
E8 = LENGTH + 64

tunes:
    .addr title_lead, title_second, title_bass, title_drums
    .addr won_lead, won_second, won_bass, won_drums

title_lead:
    .byte E2, n(nE, 5), E1, n(nD, 5), n(nC, 5), E2, n(nA, 4), n(nC, 5)
    .byte n(nC, 5), E1, n(nA, 4), n(nC, 5), E2, n(nF, 5), n(nE, 5)
    .byte n(nG, 5), E1, n(nE, 5), n(nD, 5), E2, n(nC, 5), n(nE, 5)
    .byte E3, n(nD, 5), E1, n(nB, 4), E2, n(nG, 4), n(nB, 4)
    .byte E1, n(nA, 4), n(nC, 5), E2, n(nE, 5), n(nA, 5), E1, n(nG, 5), n(nE, 5)
    .byte E2, n(nF, 5), E1, n(nE, 5), n(nD, 5), E2, n(nC, 5), n(nA, 4)
    .byte E1, n(nG, 4), n(nC, 5), E2, n(nE, 5), n(nD, 5), n(nC, 5)
    .byte n(nB, 4), E1, n(nD, 5), n(nC, 5), E2, n(nB, 4), n(nGs, 4)
    .byte E4, n(nA, 4), E2, REST, n(nE, 5)
    .byte E1, n(nF, 5), n(nE, 5), n(nD, 5), n(nC, 5), E2, n(nD, 5), n(nF, 5)
    .byte E4, n(nE, 5), E2, REST, n(nC, 5)
    .byte E1, n(nD, 5), n(nC, 5), n(nB, 4), n(nA, 4), E2, n(nB, 4), n(nD, 5)
    .byte E4, n(nC, 5), E2, n(nA, 4), n(nC, 5)
    .byte E1, n(nF, 5), n(nG, 5), E2, n(nA, 5), n(nG, 5), n(nF, 5)
    .byte E3, n(nE, 5), E1, n(nD, 5), E2, n(nC, 5), n(nB, 4)
    .byte E4, n(nA, 4), REST
    .byte AGAIN

.macro broken low, middle, high
    .byte low, middle, high, middle, low, middle, high, middle
.endmacro

title_second:
    .byte E1
    .repeat 2
    broken n(nA, 3), n(nC, 4), n(nE, 4)
    broken n(nA, 3), n(nC, 4), n(nF, 4)
    broken n(nG, 3), n(nC, 4), n(nE, 4)
    broken n(nG, 3), n(nB, 3), n(nD, 4)
    broken n(nA, 3), n(nC, 4), n(nE, 4)
    broken n(nA, 3), n(nC, 4), n(nF, 4)
    broken n(nG, 3), n(nC, 4), n(nE, 4)
    broken n(nGs, 3), n(nB, 3), n(nE, 4)
    .endrepeat
    .byte AGAIN

.macro steps tone, octave
    .byte n(tone, octave), n(tone, octave), n(tone, octave+1), n(tone, octave)
.endmacro

title_bass:
    .byte E2
    .repeat 2
    steps nA, 3
    steps nF, 3
    steps nC, 3
    steps nG, 3
    steps nA, 3
    steps nF, 3
    steps nC, 3
    steps nE, 3
    .endrepeat
    .byte AGAIN

title_drums:
    .byte E1, KICK, HAT, SNARE, HAT, KICK, KICK, SNARE, HAT
    .byte AGAIN

won_lead:
    .byte E1, n(nC, 5), n(nC, 5), n(nC, 5), E3, n(nE, 5), E1, n(nD, 5), n(nE, 5)
    .byte E2, n(nF, 5), n(nA, 5), E4, n(nG, 5)
    .byte E1, n(nE, 5), n(nF, 5), E2, n(nG, 5), n(nB, 5), E8, n(nC, 6)
    .byte STOP

won_second:
    .byte E1, n(nE, 4), n(nE, 4), n(nE, 4), E3, n(nG, 4), E1, n(nG, 4), n(nG, 4)
    .byte E2, n(nA, 4), n(nC, 5), E4, n(nB, 4)
    .byte E1, n(nG, 4), n(nA, 4), E2, n(nB, 4), n(nD, 5), E8, n(nE, 5)
    .byte STOP

won_bass:
    .byte E4, n(nC, 4), n(nC, 4), n(nF, 3), n(nG, 3)
    .byte E2, n(nC, 4), n(nG, 3), n(nG, 3), E8, n(nC, 4)
    .byte STOP

won_drums:
    .byte E1, KICK, HAT, SNARE, HAT, KICK, HAT, SNARE, HAT
    .byte KICK, HAT, SNARE, HAT, KICK, HAT, SNARE, SNARE
    .byte KICK, HAT, SNARE, HAT, SNARE, SNARE, E2, KICK
    .byte STOP
